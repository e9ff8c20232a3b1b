// Compares the arena's cost and memory with the C library's heap, for docs/benchmarks.md. Not run as tests. A process
// has only one memory peak, so run one benchmark at a time:
//
//   build/bin/unit_tests --gtest_also_run_disabled_tests --gtest_filter=ArenaBench.DISABLED_StepArena
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <random>
#include <vector>

#include "anonymous_blocks.hpp"
#include "plain_memory.hpp"
#include "store/arena.hpp"
#include "store/store.hpp"

namespace actzip::store {
namespace {

constexpr int kSteps = 100;

struct Heap {
  static Allocation allocate(std::size_t bytes) {
    void* data = nullptr;
    if (posix_memalign(&data, 64, bytes) != 0) throw std::bad_alloc();
    return {static_cast<std::byte*>(data), bytes, std::shared_ptr<void>(data, std::free)};
  }
};

struct FromArena {
  [[nodiscard]] Allocation allocate(std::size_t bytes) const { return arena->allocate(bytes); }
  std::shared_ptr<Arena> arena = Arena::create(anonymous_blocks(), std::size_t{64} << 20U);
};

/// Odd sizes from 1 KiB to `most`, small ones more often.
std::vector<std::size_t> sizes_of_step(std::size_t count, double most) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform;
  std::vector<std::size_t> sizes(count);
  for (std::size_t& size : sizes) {
    size = static_cast<std::size_t>(1024 * std::exp2(std::log2(most / 1024) * std::pow(uniform(random), 3)));
  }
  return sizes;
}

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Steps, and what they cost the process. Its own time by default: others may be at work on the machine.
template <class Step>
void measure(const char* what, std::size_t num_blobs, Step step, clockid_t clock = CLOCK_PROCESS_CPUTIME_ID) {
  step();
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  std::vector<double> seconds;
  for (int i = 0; i < kSteps; ++i) {
    const double start = seconds_of(clock);
    step();
    seconds.push_back(seconds_of(clock) - start);
  }
  std::sort(seconds.begin(), seconds.end());
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  const double median = seconds[seconds.size() / 2];
  std::printf("%s: %.3f ms a step, %.0f ns a blob, %.1f page faults a step, peak %ld MiB\n", what, median * 1e3,
              median * 1e9 / static_cast<double>(num_blobs),
              static_cast<double>(after.ru_minflt - before.ru_minflt) / kSteps, after.ru_maxrss / 1024);
}

/// Allocated in order, freed in reverse; written to, if asked for.
template <class Source>
void in_order(const char* what, const Source& source, bool is_written) {
  const std::vector<std::size_t> sizes = sizes_of_step(2000, 16 << 20);
  std::size_t total = 0;
  for (const std::size_t size : sizes) total += size;
  std::printf("%zu blobs of %zu MiB\n", sizes.size(), total >> 20U);
  std::vector<Allocation> blobs(sizes.size());
  measure(what, sizes.size(), [&] {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      blobs[i] = source.allocate(sizes[i]);
      if (is_written) std::memset(blobs[i].data, 1, sizes[i]);
    }
    for (std::size_t i = sizes.size(); i-- > 0;) blobs[i] = {};
  });
}

/// A training step: a layer's result comes from the heap, is encoded, and lives until the next layer has read it. What
/// it is decoded to in backward comes from the heap as well. Sequences of varied length make every size another one in
/// each step.
template <class Source>
void step_of_layers(const char* what, const Source& source, bool is_varied = false) {
  constexpr std::size_t kRatio = 6;
  std::vector<std::size_t> sizes = sizes_of_step(1000, 4 << 20);
  const std::vector<std::size_t> longest = sizes;
  std::mt19937 random(3);
  std::uniform_real_distribution<double> length(0.25, 1);
  std::size_t live = 0;
  std::size_t peak = 0;
  for (const std::size_t size : sizes) {
    live += size;
    peak = std::max(peak, live + 2 * kRatio * size);
  }
  std::printf("%zu blobs of %zu MiB; %zu MiB are needed at once\n", sizes.size(), live >> 20U, peak >> 20U);
  const auto result = [](std::size_t size) {
    Allocation values = Heap::allocate(kRatio * size);
    std::memset(values.data, 1, values.size);
    return values;
  };
  std::vector<Allocation> blobs(sizes.size());
  measure(what, sizes.size(), [&] {
    const double factor = is_varied ? length(random) : 1;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      sizes[i] = static_cast<std::size_t>(factor * static_cast<double>(longest[i]));
    }
    Allocation values;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      Allocation next = result(sizes[i]);
      blobs[i] = source.allocate(sizes[i]);
      std::memset(blobs[i].data, 1, sizes[i]);
      values = std::move(next);
    }
    for (std::size_t i = sizes.size(); i-- > 0;) {
      Allocation next = result(sizes[i]);
      blobs[i] = {};
      values = std::move(next);
    }
  });
}

/// Bytes through a store, in blobs of one size: written, put away, fetched in reverse order and read. ACTZIP_BENCH_MIB
/// of them; more than there is memory for shows what the disk costs.
void through_store(const char* what, Store& store) {
  constexpr std::size_t kBlob = std::size_t{4} << 20U;
  const char* const mib = std::getenv("ACTZIP_BENCH_MIB");
  const std::size_t num_blobs = (mib == nullptr ? 1024 : std::strtoull(mib, nullptr, 10)) / 4;
  test::PlainMemory memory;
  std::vector<Allocation> blobs(num_blobs);
  std::vector<std::byte> values(kBlob, std::byte{1});
  double most = 0;
  double least = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double start = seconds_of(CLOCK_MONOTONIC);
    for (Allocation& blob : blobs) {
      blob = store.reserve(kBlob, Stream(), memory);
      std::memcpy(blob.data, values.data(), kBlob);
      blob = store.put_away(std::move(blob), Stream(), memory);
    }
    for (std::size_t b = num_blobs; b-- > 0;) {
      std::memcpy(values.data(), store.fetch(blobs[b], Stream(), Stream(), memory).data, kBlob);
      blobs[b] = {};
    }
    const double seconds = seconds_of(CLOCK_MONOTONIC) - start;
    std::printf("%s: %zu MiB to and fro in %.3f s\n", what, num_blobs * 4, seconds);
    most = std::max(most, seconds);
    least = std::min(least, seconds);
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const StoreStats stats = store.stats();
  std::printf("%.3f to %.3f s; %llu of %llu fetches waited; peak of the process %ld MiB\n", least, most,
              static_cast<unsigned long long>(stats.waits), static_cast<unsigned long long>(stats.fetches),
              usage.ru_maxrss / 1024);
}

TEST(ArenaBench, DISABLED_ThroughFile) {
  through_store("file", *file_store(std::filesystem::temp_directory_path().string()));
}
TEST(ArenaBench, DISABLED_ThroughFileAlone) {
  through_store("file, nothing ahead", *file_store(std::filesystem::temp_directory_path().string(), 0));
}

TEST(ArenaBench, DISABLED_NotesArena) { in_order("arena, not written to", FromArena{}, false); }
TEST(ArenaBench, DISABLED_NotesHeap) { in_order("heap, not written to", Heap{}, false); }
TEST(ArenaBench, DISABLED_WrittenArena) { in_order("arena, written to", FromArena{}, true); }
TEST(ArenaBench, DISABLED_WrittenHeap) { in_order("heap, written to", Heap{}, true); }
TEST(ArenaBench, DISABLED_StepArena) { step_of_layers("arena", FromArena{}); }
TEST(ArenaBench, DISABLED_StepHeap) { step_of_layers("heap", Heap{}); }
TEST(ArenaBench, DISABLED_VariedArena) { step_of_layers("arena, varied", FromArena{}, true); }
TEST(ArenaBench, DISABLED_VariedHeap) { step_of_layers("heap, varied", Heap{}, true); }

}  // namespace
}  // namespace actzip::store
