// `actzip bench load`: compares the speed of the image loader with decoding alone.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "commands.hpp"
#include "data/loader.hpp"
#include "progress.hpp"
#include "table.hpp"

namespace actzip::cli {
namespace {

struct LoadOptions {
  std::string where;
  std::string split = "train";
  std::size_t batch = 128;
  std::size_t batches = 0;
  int size = 0;
  int threads = 2;
  int epochs = 3;
};

/// Results of one epoch of decoding alone and one of loading.
struct LoadRow {
  double decoded = 0.0;   ///< images per second, decoding alone
  double loaded = 0.0;    ///< images per second, loading
  double held_mib = 0.0;  ///< memory of the process after the epoch
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double memory_of_process_mib() {
  std::ifstream file("/proc/self/statm");
  long pages = 0;
  long resident = 0;
  file >> pages >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

/// Chooses CIFAR's transform for small square images and ImageNet's for all others.
data::ImageTransform choose_transform(const data::ImageSource& source, data::Split split, int size) {
  constexpr int kLargestSmall = 64;
  for (std::size_t i = 0; i < source.size(); ++i) {
    try {
      const data::Image image = source.read(i, data::DecodeHint{}).image;
      if (image.height != image.width || image.width > kLargestSmall || (size > 0 && size != image.width)) break;
      data::ImageTransform transform = data::cifar10_transform(split);
      transform.size = image.width;
      return transform;
    } catch (const data::DamagedRecord&) {
      continue;  // try the next one
    }
  }
  return data::imagenet_transform(split, size > 0 ? size : 224);
}

/// Images a second of `threads` that read and decode the same records whole, at the size that the loader takes, and do
/// nothing else.
double decode_alone(const data::ImageSource& source, const data::ImagePipeline& pipeline, int threads,
                    std::uint64_t epoch, const std::vector<std::size_t>& records) {
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<std::size_t> next = 0;
  {
    std::vector<std::jthread> workers;
    for (int i = 0; i < threads; ++i) {
      workers.emplace_back([&] {
        for (std::size_t at = next++; at < records.size(); at = next++) {
          try {
            data::DecodeHint hint = pipeline.decode_hint({0, epoch, records[at]});
            hint.part = nullptr;
            (void)source.read(records[at], hint);
          } catch (const data::DamagedRecord&) {
            continue;  // the loader skips it too
          }
        }
      });
    }
  }
  return static_cast<double>(records.size()) / seconds_since(begin);
}

double load(data::ImageLoader& loader, std::uint64_t epoch, std::size_t batches) {
  const auto begin = std::chrono::steady_clock::now();
  loader.begin_epoch(epoch);
  data::Batch batch;
  std::size_t images = 0;
  for (std::size_t i = 0; i < batches && loader.next(batch); ++i) images += batch.labels.size();
  return static_cast<double>(images) / seconds_since(begin);
}

std::string as_text(const std::vector<LoadRow>& rows) {
  using Align = Table::Align;
  Table table({{"epoch", Align::right},
               {"decoding alone, images/s", Align::right},
               {"loading, images/s", Align::right},
               {"share", Align::right},
               {"memory, MiB", Align::right}});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const LoadRow& row = rows[i];
    table.add({fmt::format("{}", i), fmt::format("{:.0f}", row.decoded), fmt::format("{:.0f}", row.loaded),
               fmt::format("{:.2f}", row.loaded / row.decoded), fmt::format("{:.1f}", row.held_mib)});
  }
  return table.text();
}

int run_load(const LoadOptions& options) {
  const data::Split split = options.split == "train" ? data::Split::train : data::Split::validation;
  const std::shared_ptr<const data::ImageSource> source = data::open_images(options.where, split);
  const data::ImageTransform transform = choose_transform(*source, split, options.size);
  data::ImageLoader loader(source, transform, {.batch = options.batch, .workers = options.threads});
  const std::size_t batches = options.batches > 0 ? std::min(options.batches, loader.batches()) : loader.batches();

  std::vector<LoadRow> rows;
  Progress progress(static_cast<std::size_t>(options.epochs));
  for (int i = 0; i < options.epochs; ++i) {
    const auto epoch = static_cast<std::uint64_t>(i);
    progress.step(fmt::format("{} images, threads: {}", batches * options.batch, options.threads));
    std::vector<std::size_t> records = data::epoch_order(source->size(), 0, epoch);
    records.resize(batches * options.batch);
    LoadRow row;
    row.decoded = decode_alone(*source, data::ImagePipeline(transform), options.threads, epoch, records);
    row.loaded = load(loader, epoch, batches);
    row.held_mib = memory_of_process_mib();
    rows.push_back(row);
  }
  fmt::print("{} of {}: {} images, {} x {}, batches of {}, threads: {}\n\n{}", source->kind(), options.where,
             source->size(), transform.size, transform.size, options.batch, options.threads, as_text(rows));
  for (const std::string& name : loader.skipped()) fmt::print("skipped {}\n", name);
  return 0;
}

}  // namespace

void add_bench_load(CLI::App& bench, Action& action) {
  CLI::App* command = bench.add_subcommand("load", "Load images in batches, against decoding them alone.");
  const auto options = std::make_shared<LoadOptions>();
  command->add_option("WHERE", options->where, "Images, as for 'actzip dataset info'")->required();
  command->add_option("--split", options->split, "train or val")->check(CLI::IsMember({"train", "val"}));
  command->add_option("--threads", options->threads, "Threads that load; 2 when left out")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command->add_option("--batch", options->batch, "Images of a batch; 128 when left out")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  command->add_option("--batches", options->batches, "Of an epoch, at most; all when left out")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N");
  command->add_option("--size", options->size, "Height and width of what comes out; 224, or that of small images")
      ->check(CLI::Range(1, 1 << 14))
      ->type_name("N");
  command->add_option("--epochs", options->epochs, "How often; 3 when left out")
      ->check(CLI::Range(1, 10000))
      ->type_name("N");
  command->footer(
      "Decoding alone is as many threads that read and decode the same images, whole, and do nothing else. "
      "Loading\n"
      "also crops, scales, flips, normalises, and puts batches in order. Memory is that of the process after each "
      "epoch.\n\n"
      "Examples:\n"
      "  actzip bench load shapes\n"
      "  actzip bench load imagenet --threads 16 --batches 200\n"
      "  actzip bench load cifar --epochs 20");
  command->callback([&action, options] { action = [options] { return run_load(*options); }; });
}

}  // namespace actzip::cli
