#include "trainer.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "actzip/torch.hpp"
#include "actzip/torch_nn.hpp"
#include "autocast.hpp"
#include "checkpoint.hpp"
#include "device.hpp"
#include "interrupt.hpp"
#include "metrics.hpp"
#include "models/replacement.hpp"
#include "models/weights.hpp"
#include "optimizer.hpp"
#include "run_lock.hpp"
#include "summary.hpp"
#include "task.hpp"

namespace actzip::train {

namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

std::optional<torch::Session> make_session(const Options& options) {
  if (options.preset == "none") return std::nullopt;
  SessionOptions session;
  session.preset = options.preset;
  session.bits = options.bits;
  session.adapt = options.adapt;
  session.interval = options.interval;
  session.budget = options.budget;
  session.offload = options.offload;
  session.seed = options.seed;
  return torch::Session(session);
}

std::string in_output(const Options& options, const std::string& given, const char* name) {
  if (!given.empty() || options.output.empty()) return given;
  return (std::filesystem::path(options.output) / name).string();
}

class Trainer {
 public:
  explicit Trainer(const Options& options);
  int run();
  int evaluate_only();

 private:
  [[nodiscard]] std::int64_t epoch() const { return progress_.step / steps_of_epoch_; }
  [[nodiscard]] double rate_in(std::int64_t step) const {
    return options_.rate * rate_factor(options_.schedule, step, steps_, steps_of_epoch_);
  }
  [[nodiscard]] bool is_due(std::int64_t every) const { return every > 0 && progress_.step % every == 0; }

  void begin();
  void take_output();
  void resume();
  void step();
  at::Tensor forward(const Batch& batch);
  void record(const Batch& batch);
  /// Logs, evaluates and saves a checkpoint as due after a step. Returns false if training should end.
  bool after_step();
  bool log();
  void evaluate();
  [[nodiscard]] Checkpoint tensors() const;
  void save();
  [[noreturn]] void fail_as_not_finite(const std::string& what) const;
  void write_report();
  void finish(bool is_done);
  void summarise();
  [[nodiscard]] std::string place_text() const;
  [[nodiscard]] std::string held_text() const;
  [[nodiscard]] NamedTensors others() const;

  Options options_;
  c10::Device device_;
  Console console_;
  std::unique_ptr<Task> task_;
  std::shared_ptr<models::Model> model_;
  std::optional<torch::Session> session_;
  std::optional<Optimizer> optimizer_;
  std::optional<MetricsFile> metrics_;
  std::int64_t steps_of_epoch_ = 1;
  std::int64_t steps_ = 1;
  std::int64_t stop_at_ = 0;
  std::optional<RunLock> lock_;             ///< on --output
  std::string data_identity_;               ///< set with --output only
  std::optional<std::int64_t> saved_step_;  ///< of the checkpoint in --output
  Progress progress_;
  Evaluation last_;      ///< last one in this process
  at::Tensor loss_sum_;  ///< since the last logged line
  Clock::time_point began_;
  double logged_seconds_ = 0;
  std::int64_t logged_examples_ = 0;
  Report report_;
  bool has_report_ = false;
  NamedTensors batches_;
};

at::Generator generator(c10::Device device) { return at::globalContext().defaultGenerator(device); }

void to_channels_last(models::Model& model) {
  const c10::NoGradGuard no_graph;
  for (at::Tensor& parameter : model.parameters()) {
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
  }
}

Trainer::Trainer(const Options& options) : options_(options), device_(choose_device(options.device)) {
  if (options.threads > 0) at::set_num_threads(static_cast<int>(options.threads));
  session_ = make_session(options);  // reports a wrong preset before loading anything
  task_ = make_task(options, device_);
  at::manual_seed(options.seed);
  model_ = models::make_model(task_->model_options());
  if (!options.weights.empty()) models::load_weights(*model_, options.weights);
  model_->to(device_);
  if (device_.is_cuda() && task_->unit() == "images") {
    at::globalContext().setBenchmarkCuDNN(true);
    if (options.channels_last) to_channels_last(*model_);
  }
  steps_of_epoch_ = task_->batches() / options.accumulate;
  if (steps_of_epoch_ < 1) {
    throw WrongUsage(fmt::format("--accumulate {}: an epoch has {} batches of {} (allowed: so many at most)",
                                 options.accumulate, task_->batches(), options.batch));
  }
  if (options.epochs > std::numeric_limits<std::int64_t>::max() / steps_of_epoch_) {
    throw WrongUsage(
        fmt::format("--epochs {}: {} steps each are too many to be counted", options.epochs, steps_of_epoch_));
  }
  steps_ = options.steps > 0 ? options.steps : options.epochs * steps_of_epoch_;
}

/// Sets up what only a training needs.
void Trainer::begin() {
  NamedTensors parameters;
  for (const auto& item : model_->named_parameters()) parameters.emplace_back(item.key(), item.value());
  optimizer_.emplace(options_, parameters);
  loss_sum_ = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device_));
  if (session_) {
    for (const auto& item : parameters) session_->register_parameters(item.second);
    for (const at::Tensor& buffer : model_->buffers()) session_->register_parameters(buffer);
    if (options_.keep != "scope") torch::nn::keep_with(*model_, *session_);
  }
  if (!options_.output.empty()) take_output();
  if (options_.resume) resume();
  if (!options_.save_weights.empty() && progress_.step == 0) models::save_weights(*model_, options_.save_weights);
  metrics_.emplace(in_output(options_, options_.metrics, "metrics.jsonl"), progress_.step);
  stop_at_ = options_.stop_after > 0 ? progress_.step + options_.stop_after : 0;
  logged_seconds_ = progress_.seconds;
  logged_examples_ = progress_.examples;
}

/// Takes over the output folder for this run.
void Trainer::take_output() {
  std::filesystem::create_directories(options_.output);
  lock_.emplace(options_.output);
  if (!lock_->problem().empty()) {
    console_.say(lock_->problem() + "; let no other run write there");
  } else {
    for (const char* name : {"checkpoint.pt", "metrics.jsonl", "report.json", "weights.pt"}) {
      models::remove_partial_file(in_output(options_, "", name));  // left by a killed run
    }
  }
  data_identity_ = task_->data_identity();
  if (!options_.resume && std::filesystem::exists(checkpoint_path(options_.output))) {
    throw WrongUsage(fmt::format("{} is there already (allowed: --resume to go on from it, or another --output)",
                                 checkpoint_path(options_.output)));
  }
}

/// Restores the random generators last, because making everything else draws from them.
void Trainer::resume() {
  const std::string path = checkpoint_path(options_.output);
  const Checkpoint saved = read_checkpoint(options_.output, options_);
  if (saved.state.data != data_identity_) {
    throw WrongUsage(fmt::format("{}: --data {} has {}, and the run had {} (allowed: the same data, wherever it lies)",
                                 path, options_.data, data_identity_, saved.state.data));
  }
  progress_ = saved.state.progress;
  if (progress_.step > steps_) {
    throw std::runtime_error(fmt::format("{}: step {} (allowed: 0 to {})", path, progress_.step, steps_));
  }
  models::load_weights(*model_, saved.model, path);
  copy_into(optimizer_->state(), saved.optimizer, path);
  if (session_) session_->load_state(saved.state.session);
  for (const auto& [name, tensor] : saved.others) {
    if (name == "loss_sum") loss_sum_.copy_(tensor);
    if (name == "random.cpu") generator(c10::kCPU).set_state(tensor);
    if (name == "random.cuda" && device_.is_cuda()) generator(device_).set_state(tensor);
  }
  if (const std::string name = first_not_finite(tensors()); !name.empty()) {
    throw std::runtime_error(fmt::format("{}: {} is not finite: nothing can go on from it", path, name));
  }
  saved_step_ = progress_.step;
  console_.say(fmt::format("going on from step {} of {}", progress_.step, steps_));
}

NamedTensors Trainer::others() const {
  NamedTensors all{{"loss_sum", loss_sum_}, {"random.cpu", generator(c10::kCPU).get_state()}};
  if (device_.is_cuda()) all.emplace_back("random.cuda", generator(device_).get_state());
  return all;
}

at::Tensor Trainer::forward(const Batch& batch) {
  const Autocast autocast(device_.type(), options_.amp);
  if (!session_) return task_->loss(*model_, batch);
  if (options_.keep == "layers") {
    torch::begin_step(*session_);
    at::Tensor loss = task_->loss(*model_, batch);
    torch::end_step(*session_);
    return loss;
  }
  const auto scope = session_->scope();
  return task_->loss(*model_, batch);
}

void Trainer::record(const Batch& batch) {
  if (options_.save_batches.empty()) return;
  const std::string number = std::to_string(batches_.size() / 2);
  batches_.emplace_back("input." + number, batch.input.cpu());
  batches_.emplace_back("target." + number, batch.target.cpu());
}

void Trainer::step() {
  const double rate = rate_in(progress_.step);
  const auto parts = static_cast<double>(options_.accumulate);
  for (std::int64_t i = 0; i < options_.accumulate; ++i) {
    const Batch batch = task_->next();
    record(batch);
    const at::Tensor loss = forward(batch);
    const at::Tensor scaled = optimizer_->loss_scale().defined() ? loss * optimizer_->loss_scale() : loss;
    (options_.accumulate > 1 ? scaled / parts : scaled).backward();
    loss_sum_ += loss.detach() / parts;
    progress_.examples += batch.examples;
  }
  optimizer_->step(rate);
  ++progress_.step;
}

std::string Trainer::held_text() const {
  if (report_.bytes_after == 0) return "";
  return fmt::format("  held {} for {}", bytes_text(report_.bytes_after), bytes_text(report_.bytes_before));
}

std::string Trainer::place_text() const {
  return fmt::format(
      "{} epoch {}/{}  step {}/{}", bar(static_cast<double>(progress_.step) / static_cast<double>(steps_)),
      (progress_.step - 1) / steps_of_epoch_ + 1, (steps_ - 1) / steps_of_epoch_ + 1, progress_.step, steps_);
}

/// Logs a line of metrics. Returns false if the loss is not finite.
bool Trainer::log() {
  const auto steps = static_cast<double>(progress_.step - progress_.logged_step);
  const double loss = loss_sum_.item<double>() / steps;  // waits for the device, so the time is right
  const double seconds = progress_.seconds + std::chrono::duration<double>(Clock::now() - began_).count();
  const double speed = static_cast<double>(progress_.examples - logged_examples_) / (seconds - logged_seconds_);
  if (session_) report_ = session_->report();
  const MemoryUse memory = memory_use(device_);
  console_.progress(fmt::format("{}  loss {:.4f}  {:.0f} {}/s  memory {}{}", place_text(), loss, speed, task_->unit(),
                                bytes_text(memory.now), held_text()));
  metrics_->write({{"kind", "train"},
                   {"step", progress_.step},
                   {"epoch", (progress_.step - 1) / steps_of_epoch_},
                   {"loss", loss},
                   {"rate", rate_in(progress_.step - 1)},
                   {"examples_per_second", speed},
                   {"held_bytes", report_.bytes_after},
                   {"plain_bytes", report_.bytes_before},
                   {"memory_bytes", memory.now},
                   {"peak_memory_bytes", memory.peak}});
  loss_sum_.zero_();
  progress_.logged_step = progress_.step;
  logged_seconds_ = seconds;
  logged_examples_ = progress_.examples;
  return std::isfinite(loss);
}

void Trainer::evaluate() {
  const c10::NoGradGuard no_graph;
  const Autocast autocast(device_.type(), options_.amp);
  model_->eval();
  last_ = task_->evaluate(*model_);
  model_->train();
  progress_.last = last_.value;
  const double choice = last_.choice();
  const bool is_better =
      !(task_->metric().higher_is_better ? choice <= progress_.best_choice : choice >= progress_.best_choice);
  progress_.evaluations_since_best = is_better ? 0 : progress_.evaluations_since_best + 1;
  if (!is_better) return;
  progress_.best = last_.value;
  progress_.best_choice = choice;
}

/// Returns a checkpoint that has only its tensors.
Checkpoint Trainer::tensors() const {
  return {.state = {}, .model = models::state_of(*model_), .optimizer = optimizer_->state(), .others = others()};
}

void Trainer::save() {
  if (options_.output.empty()) return;
  Checkpoint checkpoint = tensors();
  checkpoint.state = {progress_, data_identity_, session_ ? session_->save_state() : std::string()};
  metrics_->flush_to_disk();
  write_checkpoint(options_.output, checkpoint, options_);
  saved_step_ = progress_.step;
}

void Trainer::fail_as_not_finite(const std::string& what) const {
  std::string text = fmt::format("{} is not finite after step {}", what, progress_.step);
  if (saved_step_) {
    text += fmt::format("; {} is that of step {}, and finite", checkpoint_path(options_.output), *saved_step_);
  } else if (!options_.output.empty()) {
    text += "; no checkpoint was written";
  }
  throw std::domain_error(text);
}

bool Trainer::after_step() {
  const bool is_last = progress_.step == steps_;
  if (is_due(options_.log_every) || is_last) {
    if (!log()) fail_as_not_finite("the loss");
  } else if (console_.is_progress_due()) {
    console_.progress(place_text());  // without the loss, which would wait for the device
  }
  const bool ends_epoch = is_due(steps_of_epoch_);
  const bool evaluates = is_last || (ends_epoch && epoch() % options_.evaluate_every == 0);
  const bool stops = interrupted_by() != 0 || progress_.step == stop_at_;
  const bool saves =
      is_last || stops || (options_.checkpoint_every > 0 ? is_due(options_.checkpoint_every) : ends_epoch);
  if (!evaluates && !saves) return true;
  synchronize(device_);
  progress_.seconds += std::chrono::duration<double>(Clock::now() - began_).count();
  if (const std::string name = first_not_finite(tensors()); !name.empty()) fail_as_not_finite(name);
  if (evaluates) {
    evaluate();
    const Metric metric = task_->metric();
    const bool is_rare = steps_of_epoch_ > 1 || is_last || is_due(options_.log_every);  // a graph's epoch is one step
    if (is_rare)
      console_.say(fmt::format("epoch {}: {} {:.{}f}", (progress_.step - 1) / steps_of_epoch_ + 1, metric.name,
                               progress_.last, metric.digits));
    Json line{{"kind", "validation"}, {"step", progress_.step}, {metric.name, progress_.last}};
    if (last_.validation) line["chosen_by"] = *last_.validation;
    metrics_->write(line);
  }
  const bool has_patience = options_.patience == 0 || progress_.evaluations_since_best < options_.patience;
  const bool ends = is_last || stops || !has_patience;
  if (ends) write_report();
  if (saves || ends) save();
  began_ = Clock::now();
  return !ends;
}

int Trainer::run() {
  begin();
  model_->train();
  bool goes_on = progress_.step < steps_;
  bool is_new = true;
  began_ = Clock::now();
  while (goes_on) {
    const std::int64_t in_epoch = progress_.step % steps_of_epoch_;
    if (is_new || in_epoch == 0) task_->begin_epoch(epoch(), in_epoch * options_.accumulate);
    is_new = false;
    step();
    goes_on = after_step() && progress_.step < steps_;
  }
  const int signal = interrupted_by();
  const bool is_done = signal == 0 || progress_.step == steps_;
  finish(is_done);
  return is_done ? kDone : 128 + signal;
}

/// Runs before the last checkpoint: a run resumed from that one makes no step that it could report.
void Trainer::write_report() {
  has_report_ = true;
  if (!session_) return;
  report_ = session_->report();
  const std::string path = in_output(options_, options_.report, "report.json");
  // A run resumed at its end has made no step: an existing report says more.
  const bool says_more = !report_.sites.empty() || !std::filesystem::exists(path);
  if (!path.empty() && says_more) models::replace_file(path, report_.to_json() + "\n");
}

/// Writes the final files and messages.
void Trainer::finish(bool is_done) {
  for (const std::string& record : task_->skipped()) console_.say(fmt::format("left out: {}", record));
  if (!options_.save_batches.empty()) models::write_tensors(options_.save_batches, batches_);
  if (!has_report_) write_report();
  if (!is_done) {
    console_.say(options_.output.empty()
                     ? fmt::format("interrupted after step {}; without --output nothing was kept", progress_.step)
                     : fmt::format("interrupted after step {}; --resume goes on from {}", progress_.step,
                                   checkpoint_path(options_.output)));
    return;
  }
  if (!options_.output.empty()) models::save_weights(*model_, in_output(options_, "", "weights.pt"));
  summarise();
}

void Trainer::summarise() {
  const Metric metric = task_->metric();
  const Summary summary{.metric = std::string(metric.name),
                        .digits = metric.digits,
                        .is_chosen_on_validation = last_.validation.has_value(),
                        .unit = std::string(task_->unit()),
                        .device = device_.str(),
                        .peak_bytes = memory_use(device_).peak,
                        .skipped = task_->skipped().size()};
  metrics_->write(summary_line(progress_, report_, summary));
  console_.say("");
  fmt::print("{}", summary_text(options_, progress_, report_, summary));
}

int Trainer::evaluate_only() {
  if (options_.weights.empty()) {
    NamedTensors weights = read_checkpoint(options_.output, options_).model;
    models::load_weights(*model_, weights, checkpoint_path(options_.output));
  }
  evaluate();
  const Metric metric = task_->metric();
  fmt::print("{} on {}: {} {:.{}f}\n", options_.model, options_.data, metric.name, progress_.last, metric.digits);
  return kDone;
}

}  // namespace

int train(const Options& options) {
  Trainer trainer(options);
  if (options.evaluate) return trainer.evaluate_only();
  watch_interrupts();
  try {
    return trainer.run();
  } catch (const std::domain_error& error) {
    fmt::print(stderr, "actzip train: {}; a lower --lr, --clip or --amp none may help\n", error.what());
    return kNotFinite;
  }
}

}  // namespace actzip::train
