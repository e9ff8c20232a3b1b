// Reads from a session's report, as written by Report::to_json(), what a plan needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "actzip/types.hpp"

namespace actzip::cli {

/// A site whose codec a plan may choose: one encoded with `rotated` or `affine`.
struct PlannedSite {
  std::string name;
  std::int64_t elems = 0;
  DType dtype = DType::f32;
  bool mask_plane = false;            ///< a ReLU reads its mask from the encoded values
  std::optional<double> sensitivity;  ///< if the report states one
};

struct ReportFile {
  std::vector<PlannedSite> sites;
  std::size_t other_sites = 0;  ///< sites not planned: masks, indices, shared tensors, tensors kept as is
  std::size_t other_bytes = 0;  ///< held by these sites
};

/// Throws std::runtime_error with a message that says what is wrong with the file, and where.
ReportFile read_report(const std::filesystem::path& path);

}  // namespace actzip::cli
