#include "options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <sstream>

#include "recipes.hpp"

namespace actzip::train {

namespace {

/// Options in these groups do not affect the numbers of a run.
constexpr const char* kMachine = "Machine";
constexpr const char* kFiles = "Files and output";

const CLI::Validator kPart = CLI::Range(0.0, 1.0);
const CLI::Validator kAboveZero = CLI::Range(std::int64_t{1}, std::int64_t{1} << 40);
const CLI::Validator kFromZero = CLI::Range(std::int64_t{0}, std::int64_t{1} << 40);
const CLI::Validator kSize = CLI::Range(std::int64_t{0}, std::int64_t{1} << 20);  // of anything in a network
const CLI::Validator kBatch = CLI::Range(std::int64_t{1}, std::int64_t{1} << 24);
const CLI::Validator kRate = CLI::Range(0.0, 1e6);

void add_network(CLI::App& app, Options& o) {
  app.add_option("--model", o.model, "What to train; --list names all")->group("Network and data");
  app.add_option("--data", o.data, "shapes[:COUNT], rings[:NODES], a folder or a file; docs/data.md says which")
      ->group("Network and data");
  const auto number = [&](const char* name, std::int64_t& value, const char* help) {
    app.add_option(name, value, help)->check(kSize)->group("Network and data");
  };
  number("--input-size", o.input_size, "Height and width of images; 32, or 224 with --augment imagenet");
  number("--classes", o.classes, "Outputs of the network, at least those of the data");
  number("--hidden", o.hidden, "Width of a transformer or of a graph network's hidden layers");
  number("--layers", o.layers, "Layers of a transformer or a graph network");
  number("--heads", o.heads, "Heads of attention");
  number("--length", o.length, "Characters of a window, or words of a sentence");
  app.add_option("--dropout", o.dropout, "In the network")->check(kPart)->group("Network and data");
  app.add_option("--input-dropout", o.input_dropout, "Of a node's features")->check(kPart)->group("Network and data");
  app.add_option("--word-dropout", o.word_dropout, "Of a sentence's words")->check(kPart)->group("Network and data");
  app.add_flag("--norm,!--no-norm", o.norm, "Graph networks: a batch norm after each hidden layer")
      ->group("Network and data");
  app.add_option("--augment", o.augment,
                 "Crops, flips and normalisation: none, cifar10, cifar100 or imagenet; auto: cifar10, or imagenet from "
                 "an input size of 128 on")
      ->check(CLI::IsMember({"auto", "none", "cifar10", "cifar100", "imagenet"}))
      ->group("Network and data");
}

void add_compression(CLI::App& app, Options& o) {
  app.add_option("--preset", o.preset,
                 "What is kept between forward and backward: --list names all; none: plain training")
      ->group("Compression");
  app.add_option("--bits", o.bits, "1, 2, 3, 4 or 8; another number from 1 to 8 is an average")
      ->check(CLI::Range(1.0, 8.0))
      ->group("Compression");
  app.add_option("--adapt", o.adapt, "Bits go where they matter: layer, sample or sample+layer")
      ->check(CLI::IsMember({"layer", "sample", "sample+layer"}))
      ->group("Compression");
  app.add_option("--interval", o.interval, "Steps from one adaptation to the next")
      ->check(kFromZero)
      ->group("Compression");
  app.add_option("--budget", o.budget,
                 "How much may be held between forward and backward: bytes (4GiB), a share of what is held without "
                 "(0.25), or auto")
      ->group("Compression");
  app.add_option("--offload", o.offload,
                 "Where it waits: host, pinned memory beside a GPU; or on the CPU a folder, for a file in it. With "
                 "--budget, only what does not fit")
      ->group("Compression");
  app.add_option("--keep", o.keep, "Who keeps: layers, a scope around the step, or both")
      ->check(CLI::IsMember({"layers", "scope", "both"}))
      ->group("Compression");
  // Only for --help: expand() rewrites it as --preset.
  app.add_option("--level", "A level of GACT (L2.2) or with its library's name (actnn:L3): short for --preset")
      ->group("Compression");
}

void add_training(CLI::App& app, Options& o) {
  const char* group = "Training";
  const auto count = [&](const char* name, std::int64_t& value, const CLI::Validator& range, const char* help) {
    app.add_option(name, value, help)->check(range)->group(group);
  };
  const auto real = [&](const char* name, double& value, const CLI::Validator& range, const char* help) {
    app.add_option(name, value, help)->check(range)->group(group);
  };
  count("--epochs", o.epochs, kAboveZero, "Times over the data");
  count("--steps", o.steps, kFromZero, "Steps of the optimizer, in place of epochs");
  count("--batch", o.batch, kBatch, "Examples of one forward");
  count("--accumulate", o.accumulate, kAboveZero, "Forwards of one step");
  app.add_option("--optimizer", o.optimizer, "sgd, adam or adamw")
      ->check(CLI::IsMember({"sgd", "adam", "adamw"}))
      ->group(group);
  real("--lr", o.rate, kRate, "Learning rate, at its highest");
  real("--momentum", o.momentum, kPart, "Of SGD");
  app.add_flag("--nesterov,!--no-nesterov", o.nesterov, "Nesterov's momentum")->group(group);
  app.add_option("--betas", o.betas, "Of Adam and AdamW")->expected(2)->check(kPart)->group(group);
  real("--weight-decay", o.weight_decay, kRate, "With AdamW beside the gradient, otherwise in it");
  app.add_flag("--decay-matrices-only,!--decay-all", o.decay_matrices_only, "No decay on norms and biases")
      ->group(group);
  app.add_option("--schedule", o.schedule.kind, "constant, cosine, cosine-by-epoch, one-cycle or step")
      ->check(CLI::IsMember({"constant", "cosine", "cosine-by-epoch", "one-cycle", "step"}))
      ->group(group);
  real("--warm-up", o.schedule.warm_up, kPart, "Part of all steps in which the rate rises; 0, or 0.3 for one-cycle");
  app.add_option("--milestones", o.schedule.milestones, "Parts of all steps, for step: 0.5 and 0.75 when left out")
      ->check(kPart)
      ->group(group);
  real("--step-factor", o.schedule.factor, kPart, "What step multiplies the rate with");
  real("--label-smoothing", o.label_smoothing, kPart, "Part of a label that goes to all classes");
  real("--clip", o.clip, kRate, "Most that the gradient's norm may be; 0: no limit");
  app.add_option("--amp", o.amp, "Products in 16 bits: none, bf16, or fp16 with a scaled loss")
      ->check(CLI::IsMember({"none", "bf16", "fp16"}))
      ->group(group);
  count("--patience", o.patience, kFromZero,
        "Stop after so many epochs without a better result, on validation nodes if there are such; 0: never");
  app.add_option("--seed", o.seed, "Of weights, order, crops, dropout and codecs")->group(group);
}

void add_machine(CLI::App& app, Options& o) {
  app.add_option("--device", o.device, "cpu or cuda; cuda if it works here, when left out")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->group(kMachine);
  app.add_flag("--channels-last,!--channels-first", o.channels_last, "Memory order of images on cuda; last by default")
      ->group(kMachine);
  app.add_option("--workers", o.workers, "Threads that load images")->check(CLI::Range(1, 1024))->group(kMachine);
  app.add_option("--threads", o.threads, "Threads that compute on the CPU; 0: all")
      ->check(CLI::Range(0, 4096))
      ->group(kMachine);
}

void add_files(CLI::App& app, Options& o) {
  const auto file = [&](const char* name, std::string& value, const char* help) {
    app.add_option(name, value, help)->type_name("FILE")->group(kFiles);
  };
  app.add_option("--output", o.output, "Folder for checkpoint.pt, metrics.jsonl, report.json and weights.pt")
      ->type_name("DIR")
      ->group(kFiles);
  app.add_flag("--resume", o.resume, "Go on from the checkpoint in --output")->group(kFiles);
  app.add_option("--checkpoint-every", o.checkpoint_every, "Steps from one checkpoint to the next; 0: epochs")
      ->check(kFromZero)
      ->group(kFiles);
  app.add_option("--stop-after", o.stop_after, "Stop with a checkpoint after so many steps of this run")
      ->check(kFromZero)
      ->group(kFiles);
  file("--weights", o.weights, "Begin with these weights, as torch.save(model.state_dict()) writes them");
  file("--save-weights", o.save_weights, "Write the weights of the beginning to this file");
  file("--save-batches", o.save_batches, "Write all that the network is given to this file, as a dict of tensors");
  file("--metrics", o.metrics, "Write JSON lines to this file; metrics.jsonl in --output when left out");
  file("--report", o.report, "Write the session's report to this file; report.json in --output when left out");
  app.add_option("--log-every", o.log_every, "Steps from one line to the next")->check(kAboveZero)->group(kFiles);
  app.add_option("--evaluate-every", o.evaluate_every, "Epochs from one evaluation to the next")
      ->check(kAboveZero)
      ->group(kFiles);
  app.add_flag("--evaluate", o.evaluate, "Only evaluate, with --weights or the checkpoint in --output")->group(kFiles);
  app.add_flag("--list", o.list, "Models, recipes and presets")->group(kFiles);
}

/// Puts the recipe's options before the arguments and rewrites --level as --preset.
std::vector<std::string> expand(const std::vector<std::string>& given) {
  std::vector<std::string> all;
  const auto value_of = [](std::span<const std::string> list, std::size_t i, std::string_view name) {
    if (list[i].starts_with(fmt::format("{}=", name))) return std::pair(list[i].substr(name.size() + 1), i);
    if (list[i] == name && i + 1 < list.size()) return std::pair(list[i + 1], i + 1);
    return std::pair(std::string(), list.size());
  };
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto [name, last] = value_of(given, i, "--recipe");
    if (last == given.size()) continue;
    std::istringstream words{std::string(find_recipe(name).options)};
    all.assign(std::istream_iterator<std::string>(words), {});
  }
  all.insert(all.end(), given.begin(), given.end());
  std::vector<std::string> result;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto [level, last] = value_of(all, i, "--level");
    if (last == all.size()) {
      result.push_back(all[i]);
      continue;
    }
    result.insert(result.end(), {"--preset", level.find(':') == std::string::npos ? "gact:" + level : level});
    i = last;
  }
  return result;
}

void check(const Options& o) {
  if (o.list) return;
  const auto fail = [](const std::string& what) { throw WrongUsage(what); };
  if (o.model.empty()) fail("--model is missing: choose one, or a --recipe; --list names them");
  if (o.data.empty()) fail("--data is missing: shapes, rings, a folder or a file");
  if (o.resume && o.output.empty()) fail("--resume needs --output, the folder with the checkpoint");
  if (o.resume && !o.weights.empty()) fail("--resume and --weights were both given: the checkpoint has weights");
  if (o.checkpoint_every > 0 && o.output.empty()) fail("--checkpoint-every needs --output, the folder for checkpoints");
  if (o.evaluate && o.weights.empty() && o.output.empty()) {
    fail("--evaluate needs weights: --weights FILE, or --output DIR with a checkpoint");
  }
  if (o.preset == "none" && (o.bits || !o.adapt.empty() || !o.budget.empty() || !o.offload.empty()))
    fail("--preset none keeps all as it is: no --bits, no --adapt, no --budget, no --offload");
  if (o.nesterov && (o.optimizer != "sgd" || o.momentum == 0.0)) {
    fail("--nesterov is for --optimizer sgd with a --momentum above 0");
  }
}

}  // namespace

std::optional<Options> parse_options(const std::vector<std::string>& arguments) {
  CLI::App app("Trains a network with compressed activations.", "actzip train");
  Options o;
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)->always_capture_default();
  app.add_option("--recipe", o.recipe, "Options of a known training; those given beside it hold; --list names all")
      ->group("Network and data");
  add_network(app, o);
  add_compression(app, o);
  add_training(app, o);
  add_machine(app, o);
  add_files(app, o);
  app.get_option("--milestones")->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.footer(
      "Ctrl-C writes a checkpoint into --output; --resume goes on from it, on the CPU bit for bit as if nothing had\n"
      "happened. Only one run at a time writes into a folder, and nothing that is not finite becomes a checkpoint.\n"
      "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 loss or weights are not finite, 130 or 143 interrupted.\n"
      "docs/train.md explains all of it.\n\n"
      "Examples:\n"
      "  actzip train --model resnet18 --data shapes --epochs 2\n"
      "  actzip train --recipe resnet18-cifar10-division --data CIFAR_DIR --output run\n"
      "  actzip train --recipe resnet18-cifar10-division --preset exact --data CIFAR_DIR --epochs 15\n"
      "  actzip train --model gcn --data rings --level L2.2 --epochs 50 --optimizer adam --lr 0.01");
  try {
    std::vector<std::string> expanded = expand(arguments);
    std::ranges::reverse(expanded);  // CLI11 expects them in reverse order
    app.parse(expanded);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw WrongUsage(error.what());
    app.exit(error);  // --help
    return std::nullopt;
  }
  check(o);
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    // --data may have moved: resume() compares its content instead.
    if (option->get_group() == kMachine || option->get_group() == kFiles || name == "--data" || name == "--recipe" ||
        name == "--help" || name == "--level") {
      continue;
    }
    o.numbers.emplace_back(name, option->count() > 0 ? fmt::format("{}", fmt::join(option->reduced_results(), " "))
                                                     : option->get_default_str());
  }
  return o;
}

}  // namespace actzip::train
