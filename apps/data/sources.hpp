// The kinds of image sources, for open_images(). Each opens what it is given, or throws DataError.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

#include "images.hpp"

namespace actzip::data {

/// Images that are drawn when they are read: the same for the same number and split, for ever.
std::unique_ptr<ImageSource> open_shapes(std::size_t train_count, Split split);

/// Whether the folder has the binary files of CIFAR-10 or CIFAR-100; and all that belong to the split as one source.
bool holds_cifar(const std::filesystem::path& folder);
std::unique_ptr<ImageSource> open_cifar(const std::filesystem::path& folder, Split split);

/// JPEGs in one file: "JPGS", a count of 32 bits, then label (8 bits), length (32 bits) and bytes of each.
std::unique_ptr<ImageSource> open_jpegs_file(const std::filesystem::path& file);

}  // namespace actzip::data
