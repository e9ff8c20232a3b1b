// The tasks of predicting the next character of a text and of classifying sentences.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

#include "data/file.hpp"
#include "data/random.hpp"
#include "data/text.hpp"
#include "task.hpp"

namespace actzip::train {

namespace {

constexpr std::int64_t kTextLength = 256;
constexpr std::int64_t kSentenceLength = 64;
constexpr std::int64_t kValidationBatch = 64;
constexpr std::size_t kPool = 32;  // batches of sentences are cut from pools of this many batches, sorted by length

/// Trains on windows at random places of a text. An epoch has as many windows as fit into the text side by side.
class TextTask final : public Task {
 public:
  TextTask(const Options& options, c10::Device device)
      : options_(options),
        device_(device),
        length_(options.length > 0 ? options.length : kTextLength),
        text_(data::load_text(options.data)) {
    const auto shortest = std::min(text_.train().size(), text_.validation().size());
    if (static_cast<std::int64_t>(shortest) <= length_) {
      throw data::DataError(fmt::format("{}: {} characters (allowed: more than {}, for windows of {} in a tenth of it)",
                                        options.data, text_.tokens.size(), 10 * length_, length_));
    }
    constexpr std::size_t kMost = std::numeric_limits<std::uint32_t>::max();  // the range of drawn places
    if (text_.tokens.size() > kMost) {
      throw data::DataError(fmt::format("{}: {} characters (allowed: {})", options.data, text_.tokens.size(), kMost));
    }
    std::vector<std::int64_t> tokens(text_.tokens.begin(), text_.tokens.end());
    tokens_ = to_device(tokens, device);
    window_ = at::arange(length_ + 1, tokens_.options());
  }

  [[nodiscard]] std::string data_identity() const override {
    return fmt::format("{} characters, {:08x}", text_.tokens.size(), data::checksum(text_.tokens));
  }
  [[nodiscard]] models::ModelOptions model_options() const override {
    models::ModelOptions model = common_model_options(options_);
    model.vocabulary = static_cast<std::int64_t>(text_.vocabulary.size());
    model.length = length_;
    return model;
  }
  [[nodiscard]] std::int64_t batches() const override {
    const auto windows = static_cast<std::int64_t>(text_.train().size()) / length_;
    return std::max<std::int64_t>(windows / options_.batch, 1);
  }
  [[nodiscard]] std::string_view unit() const override { return "characters"; }
  [[nodiscard]] Metric metric() const override { return {"loss", false, 4}; }

  void begin_epoch(std::int64_t epoch, std::int64_t first_batch) override {
    epoch_ = epoch;
    next_ = first_batch;
  }

  Batch next() override {
    std::vector<std::int64_t> begins(static_cast<std::size_t>(options_.batch));
    const auto places = static_cast<std::uint32_t>(static_cast<std::int64_t>(text_.train().size()) - length_);
    data::Draws draws(options_.seed, static_cast<std::uint64_t>(epoch_), static_cast<std::uint64_t>(next_++));
    for (std::int64_t& begin : begins) begin = draws.below(places);
    return windows_at(to_device(begins, device_));
  }

  [[nodiscard]] at::Tensor loss(models::Model& model, const Batch& batch) const override {
    return cross_entropy(model.forward(batch.input).flatten(0, 1), batch.target.flatten(), options_.label_smoothing);
  }

  /// Returns the loss in nats over adjacent windows.
  [[nodiscard]] Evaluation evaluate(models::Model& model) override {
    const auto first = static_cast<std::int64_t>(text_.validation_begin);
    const auto last = static_cast<std::int64_t>(text_.tokens.size()) - length_;
    const at::Tensor begins = at::arange(first, last, length_, tokens_.options());
    double sum = 0.0;
    for (const at::Tensor& part : begins.split(kValidationBatch)) {
      const Batch batch = windows_at(part);
      const at::Tensor logits = model.forward(batch.input).flatten(0, 1);
      sum += cross_entropy(logits, batch.target.flatten(), 0.0).item<double>() * static_cast<double>(part.size(0));
    }
    return {sum / static_cast<double>(begins.size(0))};
  }

 private:
  [[nodiscard]] Batch windows_at(const at::Tensor& begins) const {
    const at::Tensor windows = tokens_.index({begins.unsqueeze(1) + window_});
    return {windows.slice(1, 0, length_), windows.slice(1, 1), {}, begins.size(0) * length_};
  }

  Options options_;
  c10::Device device_;
  std::int64_t length_;
  data::Text text_;
  at::Tensor tokens_;
  at::Tensor window_;
  std::int64_t epoch_ = 0;
  std::int64_t next_ = 0;
};

/// Makes batches of sentences of similar length, padded to the longest of the batch.
class SentenceTask final : public Task {
 public:
  SentenceTask(const Options& options, c10::Device device)
      : options_(options),
        device_(device),
        all_(data::load_sentences(options.data, {.longest = options.length > 0 ? options.length : kSentenceLength})),
        train_labels_(to_device(all_.train.labels, device)),
        validation_(to_device(all_.validation.ids, device).view({-1, all_.longest})),
        validation_labels_(to_device(all_.validation.labels, device)) {
    if (train_labels_.size(0) < options.batch) {
      throw data::DataError(fmt::format("{}: {} sentences to train with (allowed: {} or more, for one batch)",
                                        options.data, train_labels_.size(0), options.batch));
    }
  }

  [[nodiscard]] std::string data_identity() const override {
    const std::uint32_t train = data::checksum(all_.train.ids, data::checksum(all_.train.labels));
    return fmt::format("{} sentences, {:08x}", all_.train.labels.size(), data::checksum(all_.validation.ids, train));
  }
  [[nodiscard]] models::ModelOptions model_options() const override {
    models::ModelOptions model = common_model_options(options_);
    model.classes = std::max(options_.classes, all_.classes);
    model.vocabulary = all_.vocabulary;
    model.length = all_.longest;
    return model;
  }
  [[nodiscard]] std::int64_t batches() const override { return train_labels_.size(0) / options_.batch; }
  [[nodiscard]] std::string_view unit() const override { return "sentences"; }
  [[nodiscard]] Metric metric() const override { return {"accuracy", true, 2}; }

  void begin_epoch(std::int64_t epoch, std::int64_t first_batch) override {
    order_ = order_of(static_cast<std::uint64_t>(epoch));
    epoch_ = epoch;
    next_ = first_batch;
  }

  Batch next() override {
    const auto batch = static_cast<std::size_t>(options_.batch);
    const std::span<const std::size_t> rows = std::span(order_).subspan(static_cast<std::size_t>(next_) * batch, batch);
    std::int64_t longest = 1;
    for (const std::size_t row : rows) longest = std::max(longest, all_.train.lengths[row]);
    std::vector<std::int64_t> ids;
    data::Draws draws(options_.seed, static_cast<std::uint64_t>(epoch_), static_cast<std::uint64_t>(next_++));
    for (const std::size_t row : rows) {
      for (std::int64_t i = 0; i < longest; ++i) {
        const std::int64_t id =
            all_.train.ids[row * static_cast<std::size_t>(all_.longest) + static_cast<std::size_t>(i)];
        const bool is_dropped = options_.word_dropout > 0 && id > data::kFirst && draws.unit() < options_.word_dropout;
        ids.push_back(is_dropped ? data::kUnknown : id);
      }
    }
    const std::vector<std::int64_t> indices(rows.begin(), rows.end());
    const at::Tensor words = to_device(ids, device_).view({options_.batch, longest});
    return {words, train_labels_.index({to_device(indices, device_)}), words.ne(data::kPadding), options_.batch};
  }

  [[nodiscard]] at::Tensor loss(models::Model& model, const Batch& batch) const override {
    return cross_entropy(model.forward(batch.input, batch.extra), batch.target, options_.label_smoothing);
  }

  [[nodiscard]] Evaluation evaluate(models::Model& model) override {
    std::int64_t correct = 0;
    for (std::int64_t begin = 0; begin < validation_.size(0); begin += kValidationBatch) {
      const at::Tensor words = validation_.slice(0, begin, begin + kValidationBatch);
      const at::Tensor labels = validation_labels_.slice(0, begin, begin + kValidationBatch);
      correct += count_correct(model.forward(words, words.ne(data::kPadding)), labels);
    }
    return {100.0 * static_cast<double>(correct) / static_cast<double>(std::max<std::int64_t>(validation_.size(0), 1))};
  }

 private:
  /// Shuffles the sentences, sorts each pool by length and cuts it into batches, then shuffles the batches.
  [[nodiscard]] std::vector<std::size_t> order_of(std::uint64_t epoch) const {
    const auto batch = static_cast<std::size_t>(options_.batch);
    std::vector<std::size_t> rows = data::epoch_order(all_.train.labels.size(), options_.seed, 2 * epoch);
    for (std::size_t begin = 0; begin < rows.size(); begin += kPool * batch) {
      const auto first = rows.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto last = rows.begin() + static_cast<std::ptrdiff_t>(std::min(begin + kPool * batch, rows.size()));
      std::stable_sort(first, last,
                       [&](std::size_t a, std::size_t b) { return all_.train.lengths[a] < all_.train.lengths[b]; });
    }
    std::vector<std::size_t> result;
    for (const std::size_t which : data::epoch_order(rows.size() / batch, options_.seed, 2 * epoch + 1)) {
      const auto first = rows.begin() + static_cast<std::ptrdiff_t>(which * batch);
      result.insert(result.end(), first, first + static_cast<std::ptrdiff_t>(batch));
    }
    return result;
  }

  Options options_;
  c10::Device device_;
  data::Sentences all_;
  at::Tensor train_labels_;
  at::Tensor validation_;
  at::Tensor validation_labels_;
  std::vector<std::size_t> order_;
  std::int64_t epoch_ = 0;
  std::int64_t next_ = 0;
};

}  // namespace

std::unique_ptr<Task> make_text_task(const Options& options, c10::Device device) {
  return std::make_unique<TextTask>(options, device);
}

std::unique_ptr<Task> make_sentence_task(const Options& options, c10::Device device) {
  return std::make_unique<SentenceTask>(options, device);
}

}  // namespace actzip::train
