// The task of classifying images.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "data/file.hpp"
#include "data/loader.hpp"
#include "task.hpp"

namespace actzip::train {

namespace {

constexpr std::int64_t kSmall = 32;
constexpr std::int64_t kLarge = 224;
constexpr std::int64_t kImagenetFrom = 128;
constexpr std::int64_t kValidationBatch = 256;

std::string augment_of(const Options& options) {
  if (options.augment != "auto") return options.augment;
  return options.input_size >= kImagenetFrom ? "imagenet" : "cifar10";
}

int size_of(const Options& options) {
  if (options.input_size > 0) return static_cast<int>(options.input_size);
  return static_cast<int>(augment_of(options) == "imagenet" ? kLarge : kSmall);
}

/// With `none`, training images are prepared like validation images. Both are scaled to --input-size if it is given.
data::ImageTransform transform_of(const Options& options, data::Split split) {
  const std::string augment = augment_of(options);
  if (augment == "imagenet") return data::imagenet_transform(split, size_of(options));
  if (augment == "none") split = data::Split::validation;
  data::ImageTransform transform =
      augment == "cifar100" ? data::cifar100_transform(split) : data::cifar10_transform(split);
  transform.size = size_of(options);
  if (augment == "none" && options.input_size > 0) {
    transform.crop = data::Crop::centre;
    transform.resize = transform.size;
  }
  return transform;
}

data::LoaderOptions loader_options(const Options& options, data::Split split) {
  data::LoaderOptions loader;
  loader.workers = options.workers;
  loader.seed = options.seed;
  loader.batch = static_cast<std::size_t>(split == data::Split::train ? options.batch : kValidationBatch);
  loader.shuffle = loader.drop_last = split == data::Split::train;
  return loader;
}

class ImageTask final : public Task {
 public:
  ImageTask(const Options& options, c10::Device device)
      : options_(options),
        device_(device),
        source_(data::open_images(options.data, data::Split::train)),
        train_(source_, transform_of(options, data::Split::train), loader_options(options, data::Split::train)),
        validation_(data::open_images(options.data, data::Split::validation),
                    transform_of(options, data::Split::validation), loader_options(options, data::Split::validation)) {
    if (options.classes > 0 && options.classes < source_->classes()) {
      throw WrongUsage(fmt::format("--classes {}: {} has {} (allowed: as many or more)", options.classes, options.data,
                                   source_->classes()));
    }
  }

  /// Samples a few images, because reading all of them may take hours.
  [[nodiscard]] std::string data_identity() const override {
    constexpr std::size_t kLookedAt = 16;
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < kLookedAt && i < source_->size(); ++i) {
      try {
        const data::Example example = source_->read(source_->size() * i / kLookedAt, {});
        sum = data::checksum(example.image.rgb, data::checksum(std::vector{example.label}, sum));
      } catch (const data::DamagedRecord&) {
        ++sum;  // the loader reports it
      }
    }
    return fmt::format("{} images of {} classes, {:08x}", source_->size(), source_->classes(), sum);
  }
  [[nodiscard]] models::ModelOptions model_options() const override {
    models::ModelOptions model = common_model_options(options_);
    model.classes = std::max(options_.classes, source_->classes());
    model.image_size = size_of(options_);
    return model;
  }
  [[nodiscard]] std::int64_t batches() const override { return static_cast<std::int64_t>(train_.batches()); }
  [[nodiscard]] std::string_view unit() const override { return "images"; }
  [[nodiscard]] Metric metric() const override { return {"accuracy", true, 2}; }

  void begin_epoch(std::int64_t epoch, std::int64_t first_batch) override {
    train_.begin_epoch(static_cast<std::uint64_t>(epoch), static_cast<std::size_t>(first_batch));
  }

  Batch next() override {
    if (!train_.next(loaded_)) throw data::DataError(fmt::format("{}: the epoch has ended early", options_.data));
    return uploaded();
  }

  [[nodiscard]] at::Tensor loss(models::Model& model, const Batch& batch) const override {
    return cross_entropy(model.forward(batch.input), batch.target, options_.label_smoothing);
  }

  [[nodiscard]] Evaluation evaluate(models::Model& model) override {
    std::int64_t correct = 0;
    std::int64_t all = 0;
    validation_.begin_epoch(0);
    while (validation_.next(loaded_)) {
      const Batch batch = uploaded();
      correct += count_correct(model.forward(batch.input), batch.target);
      all += batch.examples;
    }
    return {all > 0 ? 100.0 * static_cast<double>(correct) / static_cast<double>(all) : 0.0};
  }

  [[nodiscard]] std::vector<std::string> skipped() const override {
    std::vector<std::string> names = train_.skipped();
    names.insert(names.end(), validation_.skipped().begin(), validation_.skipped().end());
    return names;
  }

 private:
  Batch uploaded() {
    const auto count = static_cast<std::int64_t>(loaded_.labels.size());
    const auto options = at::TensorOptions().dtype(at::kFloat).pinned_memory(device_.is_cuda());
    at::Tensor images = at::empty({count, loaded_.channels, loaded_.height, loaded_.width}, options);
    std::memcpy(images.mutable_data_ptr(), loaded_.pixels.data(), images.nbytes());
    images = images.to(device_, at::kFloat, /*non_blocking=*/true);
    if (device_.is_cuda() && options_.channels_last) images = images.contiguous(at::MemoryFormat::ChannelsLast);
    return {images, to_device(loaded_.labels, device_), {}, count};
  }

  Options options_;
  c10::Device device_;
  std::shared_ptr<const data::ImageSource> source_;
  data::ImageLoader train_;
  data::ImageLoader validation_;
  data::Batch loaded_;
};

}  // namespace

std::unique_ptr<Task> make_image_task(const Options& options, c10::Device device) {
  return std::make_unique<ImageTask>(options, device);
}

}  // namespace actzip::train
