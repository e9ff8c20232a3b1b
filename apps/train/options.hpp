// What a run is asked for, as typed. Recipes are the same options, written down.
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

  // The network; 0 and -1 stand for the model's own default.
  std::int64_t input_size = 0;  ///< of images; 0: 32, or 224 with the transforms of ImageNet
  std::int64_t classes = 0;     ///< 0: those of the data
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t length = 0;  ///< of a text's window or a sentence
  double dropout = -1;
  double input_dropout = 0;
  bool norm = false;

  // What is kept between forward and backward.
  std::string preset = "default";  ///< "none": plain training
  std::optional<double> bits;
  std::string adapt;
  std::int64_t interval = 0;
  std::string budget;
  std::string offload;
  std::string keep = "both";  ///< layers, scope or both

  // How it is trained.
  std::int64_t epochs = 10;
  std::int64_t steps = 0;  ///< in place of epochs
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

  // Where and with what.
  std::string device = "auto";
  bool channels_last = true;
  int workers = 2;
  std::int64_t threads = 0;

  // Files and output.
  std::string output;
  bool resume = false;
  std::int64_t checkpoint_every = 0;  ///< steps; 0: after each epoch
  std::int64_t stop_after = 0;
  std::string weights;
  std::string save_weights;
  std::string save_batches;
  std::string metrics;
  std::string report;
  std::int64_t log_every = 50;
  std::int64_t evaluate_every = 1;  ///< epochs
  bool evaluate = false;
  bool list = false;

  /// The options that decide which numbers come out, with their values as text: what a resumed run must have in common
  /// with its checkpoint.
  std::vector<std::pair<std::string, std::string>> numbers;
};

/// Reads a command line, a recipe's options first. None if it was answered (--help). Throws WrongUsage.
std::optional<Options> parse_options(const std::vector<std::string>& arguments);

/// What was given and what is allowed.
class WrongUsage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace actzip::train
