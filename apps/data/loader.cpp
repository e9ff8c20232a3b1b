#include "loader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace actzip::data {
namespace {

/// A batch made by a worker.
struct Made {
  Batch batch;
  std::vector<std::pair<std::size_t, std::string>> damaged;  ///< records with a description of the damage
  std::exception_ptr failure;
};

void fill(Made& made, const ImageSource& source, const ImagePipeline& pipeline, std::uint64_t seed, std::uint64_t epoch,
          std::span<const std::size_t> records) {
  Batch& batch = made.batch;
  batch.height = batch.width = pipeline.transform().size;
  const std::size_t image_elems = pipeline.image_elems();
  batch.pixels.resize(records.size() * image_elems);
  batch.labels.clear();
  batch.indices.clear();
  for (const std::size_t record : records) {
    const Draws draws(seed, epoch, record);
    try {
      const Example example = source.read(record, pipeline.decode_hint(draws));
      pipeline.apply(example.image, draws,
                     std::span(batch.pixels).subspan(batch.labels.size() * image_elems, image_elems));
      batch.labels.push_back(example.label);
      batch.indices.push_back(static_cast<std::int64_t>(record));
    } catch (const DamagedRecord& damaged) {
      made.damaged.emplace_back(record, damaged.what());
    }
  }
  batch.pixels.resize(batch.labels.size() * image_elems);
}

}  // namespace

/// The worker threads of one epoch. Each worker claims the next batch, makes it alone and puts it on the shelf. Workers
/// stay at most `queue` batches ahead of the consumer.
class ImageLoader::Epoch {
 public:
  Epoch(const ImageLoader& loader, std::uint64_t number, std::size_t first_batch, std::vector<Batch> spare)
      : source_(*loader.source_),
        pipeline_(loader.pipeline_),
        options_(loader.options_),
        number_(number),
        end_(loader.batches()),
        to_make_(first_batch),
        to_give_(first_batch),
        spare_(std::move(spare)) {
    if (options_.shuffle) order_ = epoch_order(source_.size(), options_.seed, number);
    if (!options_.shuffle) {
      for (std::size_t i = 0; i < source_.size(); ++i) order_.push_back(i);
    }
    for (int i = 0; i < options_.workers; ++i) workers_.emplace_back([this] { work(); });
  }
  Epoch(const Epoch&) = delete;
  Epoch& operator=(const Epoch&) = delete;

  ~Epoch() { stop(); }

  /// Ends the threads and returns their batches' memory, so that the next epoch need not allocate it again.
  std::vector<Batch> stop() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    room_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
    for (auto& [number, made] : shelf_) spare_.push_back(std::move(made.batch));
    shelf_.clear();
    return std::move(spare_);
  }

  /// Returns the next batch in order, or nothing at the end of the epoch. Reuses the memory of `used`.
  std::optional<Made> take(Batch used) {
    std::unique_lock lock(mutex_);
    if (used.pixels.capacity() > 0) spare_.push_back(std::move(used));
    if (to_give_ == end_) return std::nullopt;
    arrived_.wait(lock, [&] { return shelf_.contains(to_give_); });
    auto node = shelf_.extract(to_give_++);
    lock.unlock();
    room_.notify_all();
    return std::move(node.mapped());
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      room_.wait(lock, [&] { return stopped_ || to_make_ == end_ || to_make_ < to_give_ + options_.queue; });
      if (stopped_ || to_make_ == end_) return;
      const std::size_t number = to_make_++;
      Made made;
      if (!spare_.empty()) {
        made.batch = std::move(spare_.back());
        spare_.pop_back();
      }
      lock.unlock();
      try {
        fill(made, source_, pipeline_, options_.seed, number_, records_of(number));
      } catch (...) {
        made.failure = std::current_exception();
      }
      lock.lock();
      shelf_.emplace(number, std::move(made));
      arrived_.notify_one();
    }
  }

  [[nodiscard]] std::span<const std::size_t> records_of(std::size_t batch) const {
    const std::size_t begin = batch * options_.batch;
    return std::span(order_).subspan(begin, std::min(options_.batch, order_.size() - begin));
  }

  const ImageSource& source_;
  const ImagePipeline& pipeline_;
  const LoaderOptions& options_;
  const std::uint64_t number_;
  const std::size_t end_;
  std::vector<std::size_t> order_;

  std::mutex mutex_;  ///< guards the members below, except workers_
  std::condition_variable room_;
  std::condition_variable arrived_;
  bool stopped_ = false;
  std::size_t to_make_;
  std::size_t to_give_;
  std::map<std::size_t, Made> shelf_;
  std::vector<Batch> spare_;

  std::vector<std::thread> workers_;
};

ImageLoader::ImageLoader(std::shared_ptr<const ImageSource> source, const ImageTransform& transform,
                         const LoaderOptions& options)
    : source_(std::move(source)), pipeline_(transform), options_(options) {
  constexpr int kMostWorkers = 1024;
  if (options_.batch < 1) throw DataError("batches of 0 images (allowed: 1 or more)");
  if (options_.queue < 1) throw DataError("a queue of 0 batches (allowed: 1 or more)");
  if (options_.workers < 1 || options_.workers > kMostWorkers) {
    throw DataError(fmt::format("{} loading threads (allowed: 1 to {})", options_.workers, kMostWorkers));
  }
  if (batches() == 0) {
    throw DataError(fmt::format("batches of {} from {} images (allowed: at most as many as there are)", options_.batch,
                                source_->size()));
  }
}

ImageLoader::~ImageLoader() = default;

std::size_t ImageLoader::batches() const {
  const std::size_t rest = options_.drop_last ? 0 : options_.batch - 1;
  return (source_->size() + rest) / options_.batch;
}

void ImageLoader::begin_epoch(std::uint64_t epoch, std::size_t first_batch) {
  if (first_batch > batches()) {
    throw DataError(fmt::format("batch {} of an epoch (allowed: 0 to {})", first_batch, batches()));
  }
  std::vector<Batch> spare;
  if (epoch_) spare = epoch_->stop();  // before the new epoch starts its threads
  epoch_ = std::make_unique<Epoch>(*this, epoch, first_batch, std::move(spare));
}

bool ImageLoader::next(Batch& batch) {
  if (!epoch_) throw DataError("next() before begin_epoch()");
  do {
    std::optional<Made> made = epoch_->take(std::move(batch));
    if (!made) return false;
    if (made->failure) std::rethrow_exception(made->failure);
    for (auto& [record, what] : made->damaged) {
      if (skipped_records_.insert(record).second) skipped_.push_back(std::move(what));
    }
    batch = std::move(made->batch);
  } while (batch.labels.empty());  // skip a batch whose records are all damaged
  return true;
}

}  // namespace actzip::data
