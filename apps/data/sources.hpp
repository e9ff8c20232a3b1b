// The image sources that open_images() chooses from. The open functions throw DataError.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

#include "images.hpp"

namespace actzip::data {

/// Opens generated images, drawn on reading. An image depends only on its number and split, and never changes.
std::unique_ptr<ImageSource> open_shapes(std::size_t train_count, Split split);

/// Whether the folder has the binary files of CIFAR-10 or CIFAR-100.
bool holds_cifar(const std::filesystem::path& folder);
/// Opens all of CIFAR's files for the split as one source.
std::unique_ptr<ImageSource> open_cifar(const std::filesystem::path& folder, Split split);

/// Opens a file of JPEGs: "JPGS", a 32-bit count, then the label (8 bits), length (32 bits) and bytes of each.
std::unique_ptr<ImageSource> open_jpegs_file(const std::filesystem::path& file);

}  // namespace actzip::data
