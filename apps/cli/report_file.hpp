// The report of a session, as Report::to_json() wrote it: what a plan needs of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "actzip/types.hpp"

namespace actzip::cli {

/// A site whose codec a plan may choose: its values are kept by `rotated` or `affine`.
struct PlannedSite {
  std::string name;
  std::int64_t elems = 0;
  DType dtype = DType::f32;
  bool mask_plane = false;            ///< a ReLU reads the mask of what is kept
  std::optional<double> sensitivity;  ///< if the report has it
};

struct ReportFile {
  std::vector<PlannedSite> sites;
  std::size_t other_sites = 0;  ///< masks, indices, what is shared, what must stay as it is
  std::size_t other_bytes = 0;  ///< what they keep
};

/// Throws std::runtime_error that says what is wrong with the file, and where.
ReportFile read_report(const std::filesystem::path& path);

}  // namespace actzip::cli
