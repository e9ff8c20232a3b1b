// Makes batches of images on threads, ahead of the consumer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "images.hpp"
#include "transforms.hpp"

namespace actzip::data {

/// A batch. Pixels are [labels.size(), channels, height, width]. Has fewer images than requested if records were
/// damaged.
struct Batch {
  std::vector<float> pixels;
  int channels = 3;
  int height = 0;
  int width = 0;
  std::vector<std::int64_t> labels;
  std::vector<std::int64_t> indices;  ///< of the records in the source
};

struct LoaderOptions {
  std::size_t batch = 128;
  int workers = 2;
  std::uint64_t seed = 0;
  bool shuffle = true;
  bool drop_last = true;  ///< leave out records that do not fill a whole batch
  std::size_t queue = 4;  ///< maximum number of batches made in advance
};

/// Loads batches. The same source, transform, batch size and seed give the same batches for any number of workers. Not
/// thread-safe: use it from one thread at a time.
class ImageLoader {
 public:
  /// Throws DataError for an option out of range, or if there is not a single batch.
  ImageLoader(std::shared_ptr<const ImageSource> source, const ImageTransform& transform, const LoaderOptions& options);
  ~ImageLoader();

  /// The number of batches per epoch.
  [[nodiscard]] std::size_t batches() const;

  /// Starts an epoch at batch `first_batch`. Drops the rest of the previous epoch.
  void begin_epoch(std::uint64_t epoch, std::size_t first_batch = 0);

  /// Gives the next batch of the epoch and returns true, or returns false at its end. Reuses the memory of `batch` for
  /// later batches. Rethrows a worker's exception, except for damaged records, which are left out of the batch.
  bool next(Batch& batch);

  /// The records that next() has left out so far, once each, as "name: why".
  [[nodiscard]] const std::vector<std::string>& skipped() const { return skipped_; }

 private:
  class Epoch;

  std::shared_ptr<const ImageSource> source_;
  ImagePipeline pipeline_;
  LoaderOptions options_;
  std::unique_ptr<Epoch> epoch_;
  std::set<std::size_t> skipped_records_;
  std::vector<std::string> skipped_;
};

}  // namespace actzip::data
