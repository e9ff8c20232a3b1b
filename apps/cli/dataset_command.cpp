// `actzip dataset`: inspects data sets, and converts folders of JPEGs into databases.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "data/folder.hpp"
#include "data/graph.hpp"
#include "data/images.hpp"
#include "data/lmdb.hpp"
#include "data/statistics.hpp"
#include "data/text.hpp"
#include "progress.hpp"
#include "table.hpp"

namespace actzip::cli {
namespace {

struct InfoOptions {
  std::string where;
  std::string kind = "images";
  bool decode = false;
  int threads = 0;
};

struct ConvertOptions {
  std::string folder;
  std::string split = "train";
  std::string output;
};

constexpr std::size_t kMostNames = 20;

void print_names(const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < std::min(names.size(), kMostNames); ++i) fmt::print("  {}\n", names[i]);
  if (names.size() > kMostNames) fmt::print("  and {} more\n", names.size() - kMostNames);
}

void print_statistics(const data::ImageSource& source, int threads) {
  const data::ImageStatistics found = [&] {
    StatusLine status;
    return data::image_statistics(
        source, threads, [&](std::size_t done) { status.show(fmt::format("{} of {} images", done, source.size())); });
  }();
  const auto [least, most] = std::ranges::minmax(found.of_class);
  fmt::print("  decoded    {}, {} to {} of a class\n", found.images, least, most);
  fmt::print("  size       {} x {} to {} x {}\n", found.least_width, found.least_height, found.most_width,
             found.most_height);
  fmt::print("  mean       {:.6f} {:.6f} {:.6f}\n", found.mean[0], found.mean[1], found.mean[2]);
  fmt::print("  deviation  {:.6f} {:.6f} {:.6f}\n", found.deviation[0], found.deviation[1], found.deviation[2]);
  fmt::print("  damaged    {}\n", found.damaged.size());
  print_names(found.damaged);
}

void print_images(const InfoOptions& options) {
  const int threads =
      options.threads > 0 ? options.threads : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  for (const auto& [split, name] : {std::pair(data::Split::train, "train"), {data::Split::validation, "val"}}) {
    std::unique_ptr<data::ImageSource> source;
    try {
      source = data::open_images(options.where, split);
    } catch (const data::DataError& error) {
      // A data set may have only one of the splits, but its path must exist.
      if (split == data::Split::train && !std::filesystem::exists(options.where)) throw;
      fmt::print("{:<6} cannot be used: {}\n", name, error.what());
      continue;
    }
    fmt::print("{:<6} {} images of {} classes; {}\n", name, source->size(), source->classes(), source->kind());
    if (options.decode) print_statistics(*source, threads);
  }
}

void print_text(const InfoOptions& options) {
  const data::Text text = data::load_text(options.where);
  fmt::print("{} characters, {} different; {} to train with, {} to validate\n", text.tokens.size(),
             text.vocabulary.size(), text.train().size(), text.validation().size());
}

void print_sentences(const InfoOptions& options) {
  const data::Sentences sentences = data::load_sentences(options.where);
  fmt::print("{} words in the vocabulary, {} classes, rows of {}\n", sentences.vocabulary, sentences.classes,
             sentences.longest);
  for (const auto& [split, name] : {std::pair(&sentences.train, "train"), {&sentences.validation, "val"}}) {
    fmt::print("{:<6} {} sentences of up to {} words\n", name, split->labels.size(), std::ranges::max(split->lengths));
  }
}

void print_graph(const InfoOptions& options) {
  const data::Graph graph = data::load_graph(options.where);
  const auto in = [&](data::NodeSplit split) { return std::ranges::count(graph.split, split); };
  fmt::print("{} nodes with {} features, {} classes, {} edges in both directions\n", graph.nodes, graph.features,
             graph.classes, graph.from.size());
  fmt::print("{} nodes to train with, {} to validate, {} to test\n", in(data::NodeSplit::train),
             in(data::NodeSplit::validation), in(data::NodeSplit::test));
}

using Print = void (*)(const InfoOptions&);
const std::vector<std::pair<std::string, Print>>& kinds() {
  static const std::vector<std::pair<std::string, Print>> all = {
      {"images", print_images}, {"text", print_text}, {"sentences", print_sentences}, {"graph", print_graph}};
  return all;
}

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (const auto& [name, print] : kinds()) names.push_back(name);
  return names;
}

int run_info(const InfoOptions& options) {
  std::ranges::find(kinds(), options.kind, &std::pair<std::string, Print>::first)->second(options);
  return 0;
}

int run_convert(const ConvertOptions& options) {
  const data::Split split = options.split == "train" ? data::Split::train : data::Split::validation;
  const data::FolderImages images(options.folder, split);
  const std::filesystem::path output =
      options.output.empty() ? data::lmdb_of_split(options.folder, split) : std::filesystem::path(options.output);
  fmt::print(stderr, "{}: {} files of {} classes\n", images.root().string(), images.size(), images.classes());
  const data::Conversion result = [&] {
    StatusLine status;
    return data::write_lmdb(images, output, [&](std::size_t done, std::size_t all) {
      status.show(fmt::format("{} of {} files, {:.1f} %", done, all,
                              100.0 * static_cast<double>(done) / static_cast<double>(all)));
    });
  }();
  fmt::print("{}: {} images of {} classes", output.string(), result.records, images.classes());
  if (result.found == images.size()) fmt::print("; was there already");
  if (result.found > 0 && result.found < images.size()) fmt::print("; went on after {} files", result.found);
  fmt::print("\nskipped: {}\n", result.skipped.size());
  print_names(result.skipped);
  return 0;
}

void add_info(CLI::App& dataset, Action& action) {
  CLI::App* info = dataset.add_subcommand("info", "What a data set holds.");
  const auto options = std::make_shared<InfoOptions>();
  info->add_option("WHERE", options->where, "A folder, a file, or data that is generated: shapes, rings")->required();
  info->add_option("--kind", options->kind, "What to look for: images, text, sentences or graph")
      ->check(CLI::IsMember(kind_names()));
  info->add_flag("--decode", options->decode, "Also decode every image: sizes, mean, deviation, what is damaged");
  info->add_option("--threads", options->threads, "Threads that decode; as many as there are cores, when left out")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  info->footer(
      "docs/data.md lists what can be read.\n\n"
      "Examples:\n"
      "  actzip dataset info shapes\n"
      "  actzip dataset info imagenet --decode --threads 16\n"
      "  actzip dataset info --kind graph rings:500");
  info->callback([&action, options] {
    if (options->decode && options->kind != "images") {
      throw CLI::ValidationError(fmt::format("--decode belongs to --kind images, but {} was given", options->kind));
    }
    action = [options] { return run_info(*options); };
  });
}

void add_convert(CLI::App& dataset, Action& action) {
  CLI::App* convert = dataset.add_subcommand("to-lmdb", "Copy a folder of JPEGs into a database that is read faster.");
  const auto options = std::make_shared<ConvertOptions>();
  convert->add_option("FOLDER", options->folder, "With train and val in it, or a folder for each class")->required();
  convert->add_option("--split", options->split, "train or val")->check(CLI::IsMember({"train", "val"}));
  convert->add_option("--output", options->output, "The database; FOLDER/train.lmdb or val.lmdb, when left out")
      ->type_name("DIR");
  convert->footer(
      "Stopped at any time, it goes on when it is called again; until it is done, the database is in DIR.partial.\n"
      "Files that are no JPEG are named, skipped and counted.\n\n"
      "Examples:\n"
      "  actzip dataset to-lmdb imagenet --split train\n"
      "  actzip dataset to-lmdb imagenet --split val --output /fast/val.lmdb");
  convert->callback([&action, options] { action = [options] { return run_convert(*options); }; });
}

}  // namespace

void add_dataset_command(CLI::App& program, Action& action) {
  CLI::App* dataset = program.add_subcommand("dataset", "Look at data sets, and convert folders of images.");
  dataset->require_subcommand(0, 1);
  add_info(*dataset, action);
  add_convert(*dataset, action);
}

}  // namespace actzip::cli
