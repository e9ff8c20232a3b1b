#include "statistics.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

namespace actzip::data {
namespace {

/// The partial sums of one thread.
struct Seen {
  std::array<std::uint64_t, 3> sums = {};
  std::array<std::uint64_t, 3> squares = {};
  std::uint64_t pixels = 0;
  std::size_t images = 0;
  std::vector<std::size_t> of_class;
  std::map<std::size_t, std::string> damaged;
  int least_height = std::numeric_limits<int>::max();
  int least_width = std::numeric_limits<int>::max();
  int most_height = 0;
  int most_width = 0;

  void add(const Example& example) {
    const Image& image = example.image;
    for (std::size_t i = 0; i < image.rgb.size(); ++i) {
      const std::uint64_t value = image.rgb[i];
      sums[i % 3] += value;
      squares[i % 3] += value * value;
    }
    pixels += image.rgb.size() / 3;
    ++images;
    ++of_class[static_cast<std::size_t>(example.label)];
    least_height = std::min(least_height, image.height);
    least_width = std::min(least_width, image.width);
    most_height = std::max(most_height, image.height);
    most_width = std::max(most_width, image.width);
  }

  void add(const Seen& other) {
    for (std::size_t c = 0; c < 3; ++c) {
      sums[c] += other.sums[c];
      squares[c] += other.squares[c];
    }
    pixels += other.pixels;
    images += other.images;
    for (std::size_t i = 0; i < of_class.size(); ++i) of_class[i] += other.of_class[i];
    damaged.insert(other.damaged.begin(), other.damaged.end());
    least_height = std::min(least_height, other.least_height);
    least_width = std::min(least_width, other.least_width);
    most_height = std::max(most_height, other.most_height);
    most_width = std::max(most_width, other.most_width);
  }
};

void look(const ImageSource& source, std::atomic<std::size_t>& next, Seen& seen) {
  seen.of_class.resize(static_cast<std::size_t>(source.classes()));
  for (std::size_t i = next++; i < source.size(); i = next++) {
    try {
      seen.add(source.read(i, DecodeHint{}));
    } catch (const DamagedRecord& damaged) {
      seen.damaged.emplace(i, damaged.what());
    }
  }
}

ImageStatistics summary(const Seen& all) {
  ImageStatistics result;
  result.images = all.images;
  result.of_class = all.of_class;
  for (const auto& [index, what] : all.damaged) result.damaged.push_back(what);
  if (all.pixels == 0) return result;
  result.least_height = all.least_height;
  result.least_width = all.least_width;
  result.most_height = all.most_height;
  result.most_width = all.most_width;
  const auto pixels = static_cast<double>(all.pixels);
  for (std::size_t c = 0; c < 3; ++c) {
    const double mean = static_cast<double>(all.sums[c]) / pixels;
    result.mean[c] = mean / 255.0;
    result.deviation[c] = std::sqrt(static_cast<double>(all.squares[c]) / pixels - mean * mean) / 255.0;
  }
  return result;
}

}  // namespace

ImageStatistics image_statistics(const ImageSource& source, int threads,
                                 const std::function<void(std::size_t done)>& progress) {
  std::atomic<std::size_t> next = 0;
  std::atomic<int> running = threads;
  std::vector<Seen> seen(static_cast<std::size_t>(threads));
  std::vector<std::exception_ptr> failures(seen.size());
  std::mutex mutex;
  std::condition_variable ended;
  {
    std::vector<std::jthread> workers;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      workers.emplace_back([&, i] {
        try {
          look(source, next, seen[i]);
        } catch (...) {
          failures[i] = std::current_exception();
        }
        const std::lock_guard lock(mutex);
        --running;
        ended.notify_one();
      });
    }
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, std::chrono::seconds(1), [&] { return running == 0; })) {
      progress(std::min(next.load(), source.size()));
    }
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  for (std::size_t i = 1; i < seen.size(); ++i) seen[0].add(seen[i]);
  return summary(seen[0]);
}

}  // namespace actzip::data
