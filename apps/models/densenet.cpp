// DenseNets with torchvision's names.
#include <array>
#include <map>
#include <vector>

#include "families.hpp"
#include "layers.hpp"

namespace actzip::models {

namespace {

namespace nn = ::torch::nn;

struct DenseNetShape {
  std::array<std::int64_t, 4> layers;
  std::int64_t growth, stem;
};

/// Two convolutions that take all earlier outputs of the block and add `growth` channels.
class DenseLayer : public nn::Module {
 public:
  DenseLayer(std::int64_t inputs, std::int64_t growth) {
    constexpr std::int64_t kBottleneck = 4;
    norm1_ = register_module("norm1", BatchNorm2d(inputs));
    relu1_ = register_module("relu1", relu());
    conv1_ = register_module("conv1", convolution(inputs, kBottleneck * growth, 1));
    norm2_ = register_module("norm2", BatchNorm2d(kBottleneck * growth));
    relu2_ = register_module("relu2", relu());
    conv2_ = register_module("conv2", convolution(kBottleneck * growth, growth, 3));
  }

  at::Tensor forward(const at::Tensor& input) { return conv2_(relu2_(norm2_(conv1_(relu1_(norm1_(input)))))); }

 private:
  BatchNorm2d norm1_{nullptr}, norm2_{nullptr};
  ReLU relu1_{nullptr}, relu2_{nullptr};
  Conv2d conv1_{nullptr}, conv2_{nullptr};
};

class DenseBlock : public nn::Module {
 public:
  DenseBlock(std::int64_t inputs, std::int64_t layers, std::int64_t growth) {
    for (std::int64_t i = 0; i < layers; ++i) {
      layers_.push_back(register_module("denselayer" + std::to_string(i + 1),
                                        std::make_shared<DenseLayer>(inputs + i * growth, growth)));
    }
  }

  at::Tensor forward(const at::Tensor& input) {
    std::vector<at::Tensor> parts{input};
    for (const auto& layer : layers_) parts.push_back(layer->forward(parts.size() == 1 ? input : at::cat(parts, 1)));
    return at::cat(parts, 1);
  }

 private:
  std::vector<std::shared_ptr<DenseLayer>> layers_;
};

/// The layers between two blocks, which halve the number of channels and the size.
class Transition : public nn::Module {
 public:
  explicit Transition(std::int64_t inputs) {
    norm_ = register_module("norm", BatchNorm2d(inputs));
    relu_ = register_module("relu", relu());
    conv_ = register_module("conv", convolution(inputs, inputs / 2, 1));
    pool_ = register_module("pool", AvgPool2d(nn::AvgPool2dOptions(2).stride(2)));
  }

  at::Tensor forward(const at::Tensor& input) { return pool_(conv_(relu_(norm_(input)))); }

 private:
  BatchNorm2d norm_{nullptr};
  ReLU relu_{nullptr};
  Conv2d conv_{nullptr};
  AvgPool2d pool_{nullptr};
};

class DenseNet : public Model {
 public:
  DenseNet(const DenseNetShape& shape, const ModelOptions& options) {
    if (options.image_size > kSmallImage) {
      features_->push_back("conv0", convolution(3, shape.stem, 7, 2));
      features_->push_back("norm0", BatchNorm2d(shape.stem));
      features_->push_back("relu0", relu());
      features_->push_back("pool0", MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
    } else {
      features_->push_back("conv0", convolution(3, shape.stem, 3));  // every layer after it begins with a norm
    }
    std::int64_t channels = shape.stem;
    for (std::size_t i = 0; i < shape.layers.size(); ++i) {
      const std::string number = std::to_string(i + 1);
      features_->push_back("denseblock" + number,
                           std::make_shared<DenseBlock>(channels, shape.layers[i], shape.growth));
      channels += shape.layers[i] * shape.growth;
      if (i + 1 == shape.layers.size()) break;
      features_->push_back("transition" + number, std::make_shared<Transition>(channels));
      channels /= 2;
    }
    features_->push_back("norm5", BatchNorm2d(channels));
    register_module("features", features_);
    relu_ = register_module("relu", relu());
    classifier_ = register_module("classifier", Linear(channels, options.classes));
    initialise();
  }

  at::Tensor forward(const at::Tensor& input, const at::Tensor& /*extra*/) override {
    return classifier_(relu_(features_->forward(input)).mean({2, 3}));
  }

 private:
  /// Initialises the weights as torchvision does.
  void initialise() {
    for (const auto& module : modules(/*include_self=*/false)) {
      if (auto* layer = module->as<nn::Conv2dImpl>()) nn::init::kaiming_normal_(layer->weight);
    }
    nn::init::zeros_(classifier_->bias);
  }

  nn::Sequential features_;
  ReLU relu_{nullptr};
  Linear classifier_{nullptr};
};

}  // namespace

std::shared_ptr<Model> make_densenet(const ModelOptions& options) {
  static const std::map<std::string, DenseNetShape> kShapes = {{"densenet121", {{6, 12, 24, 16}, 32, 64}},
                                                               {"densenet161", {{6, 12, 36, 24}, 48, 96}},
                                                               {"densenet201", {{6, 12, 48, 32}, 32, 64}}};
  return std::make_shared<DenseNet>(kShapes.at(options.name), options);
}

}  // namespace actzip::models
