// The options of a run, as typed. A recipe is a stored list of the same options.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "schedule.hpp"

namespace actzip::train {

struct Options {
  std::string recipe;
  std::string model;
  std::string data;

  // The network. 0 and -1 mean the model's default.
  std::int64_t input_size = 0;  ///< of images; 0: 32, or 224 with ImageNet's transforms
  std::int64_t classes = 0;     ///< 0: as many as the data has
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t length = 0;  ///< of a text's window or a sentence
  double dropout = -1;
  double input_dropout = 0;
  bool norm = false;

  // Compression of what is held between forward and backward.
  std::string preset = "default";  ///< "none": plain training
  std::optional<double> bits;
  std::string adapt;
  std::int64_t interval = 0;
  std::string budget;
  std::string offload;
  std::string keep = "both";  ///< layers, scope or both

  // Training.
  std::int64_t epochs = 10;
  std::int64_t steps = 0;  ///< replaces epochs unless 0
  std::int64_t batch = 128;
  std::int64_t accumulate = 1;
  std::string optimizer = "sgd";
  double rate = 0.1;
  double momentum = 0.9;
  bool nesterov = false;
  std::vector<double> betas = {0.9, 0.999};
  double weight_decay = 0;
  bool decay_matrices_only = false;
  Schedule schedule;
  double label_smoothing = 0;
  double clip = 0;
  std::string amp = "none";
  std::string augment = "auto";
  double word_dropout = 0;
  std::int64_t patience = 0;
  std::uint64_t seed = 0;

  // The machine.
  std::string device = "auto";
  bool channels_last = true;
  int workers = 2;
  std::int64_t threads = 0;

  // Files and output.
  std::string output;
  bool resume = false;
  std::int64_t checkpoint_every = 0;  ///< in steps; 0: after each epoch
  std::int64_t stop_after = 0;
  std::string weights;
  std::string save_weights;
  std::string save_batches;
  std::string metrics;
  std::string report;
  std::int64_t log_every = 50;
  std::int64_t evaluate_every = 1;  ///< in epochs
  bool evaluate = false;
  bool list = false;

  /// The options that affect the numbers of a run, with their values as text. A resumed run must have the same ones as
  /// its checkpoint.
  std::vector<std::pair<std::string, std::string>> numbers;
};

/// Reads a command line, with a recipe's options before it. Returns nothing if it was answered (--help). Throws
/// WrongUsage.
std::optional<Options> parse_options(const std::vector<std::string>& arguments);

/// The command line is wrong. The message says what was given and what is allowed.
class WrongUsage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace actzip::train
