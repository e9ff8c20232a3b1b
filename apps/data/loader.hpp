// Batches of images, made by threads ahead of the one who asks.
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

/// Pixels as [labels.size(), channels, height, width]; fewer images than asked for where records were damaged.
struct Batch {
  std::vector<float> pixels;
  int channels = 3;
  int height = 0;
  int width = 0;
  std::vector<std::int64_t> labels;
  std::vector<std::int64_t> indices;  ///< of the records in their source
};

struct LoaderOptions {
  std::size_t batch = 128;
  int workers = 2;
  std::uint64_t seed = 0;
  bool shuffle = true;
  bool drop_last = true;  ///< the records that fill no whole batch
  std::size_t queue = 4;  ///< batches made ahead, at most
};

/// The same batches for the same source, transform, batch size and seed, whatever the number of workers. For one thread
/// at a time.
class ImageLoader {
 public:
  /// Throws DataError for an option out of its range, or fewer records than a batch.
  ImageLoader(std::shared_ptr<const ImageSource> source, const ImageTransform& transform, const LoaderOptions& options);
  ~ImageLoader();

  /// Batches of an epoch.
  [[nodiscard]] std::size_t batches() const;

  /// Starts an epoch, at this batch of it; what is left of the one before is dropped.
  void begin_epoch(std::uint64_t epoch, std::size_t first_batch = 0);

  /// The next batch of the epoch; false at its end. Takes the memory of `batch` for a later one. Throws what a worker
  /// threw, but for damaged records: they are left out of the batch.
  bool next(Batch& batch);

  /// What next() left out so far, each record once, as "name: why".
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
