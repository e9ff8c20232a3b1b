// ResNets and wide ResNets with torchvision's names, and pre-activation ResNets for small images.
#include <array>
#include <map>
#include <vector>

#include "families.hpp"
#include "layers.hpp"

namespace actzip::models {

namespace {

namespace nn = ::torch::nn;

/// Initialises the weights as torchvision does, in the order of the modules, which is that of the Python model.
void initialise(const nn::Module& model) {
  for (const auto& module : model.modules(/*include_self=*/false)) {
    if (auto* layer = module->as<nn::Conv2dImpl>()) {
      nn::init::kaiming_normal_(layer->weight, 0, ::torch::kFanOut, ::torch::kReLU);
    }
  }
}

nn::Sequential shortcut(std::int64_t inputs, std::int64_t outputs, std::int64_t stride) {
  return nn::Sequential(convolution(inputs, outputs, 1, stride), BatchNorm2d(outputs));
}

/// One convolution of a block.
struct Step {
  std::int64_t inputs, outputs, kernel, stride;
  bool bias = false;
};

struct BlockShape {
  std::int64_t inputs, planes, stride;
  std::int64_t width = 0;  ///< of a bottleneck; 0: no bottleneck but two convolutions of 3 x 3
  std::int64_t expansion = 1;

  [[nodiscard]] std::int64_t outputs() const { return planes * expansion; }
  [[nodiscard]] bool changes_shape() const { return stride != 1 || inputs != outputs(); }
  [[nodiscard]] std::vector<Step> steps() const {
    if (width == 0) return {{inputs, planes, 3, stride}, {planes, planes, 3, 1}};
    return {{inputs, width, 1, 1}, {width, width, 3, stride}, {width, outputs(), 1, 1}};
  }
};

/// A basic block or a bottleneck. Has a separate ReLU after each norm: ReLUs have no weights, and each layer is a site
/// of its own in the report.
class ResidualBlock : public nn::Module {
 public:
  explicit ResidualBlock(const BlockShape& shape) {
    if (shape.changes_shape()) downsample_ = shortcut(shape.inputs, shape.outputs(), shape.stride);
    for (const Step& step : shape.steps()) {
      const std::string number = std::to_string(convs_.size() + 1);
      convs_.push_back(
          register_module("conv" + number, convolution(step.inputs, step.outputs, step.kernel, step.stride)));
      norms_.push_back(register_module("bn" + number, BatchNorm2d(step.outputs)));
      relus_.push_back(register_module("relu" + number, relu()));
    }
    if (downsample_) register_module("downsample", downsample_);
  }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = input;
    for (std::size_t i = 0; i < convs_.size(); ++i) {
      x = norms_[i](convs_[i](x));
      if (i + 1 < convs_.size()) x = relus_[i](x);
    }
    return relus_.back()(x + (downsample_ ? downsample_->forward(input) : input));
  }

 private:
  nn::Sequential downsample_{nullptr};
  std::vector<Conv2d> convs_;
  std::vector<BatchNorm2d> norms_;
  std::vector<ReLU> relus_;
};

/// A stage of a network. Its blocks have torchvision's names: layer1.0, layer1.1, ..., layer4.2.
struct StageShape {
  std::int64_t blocks, planes, width, stride;
};

template <class BlockType>
std::vector<nn::Sequential> add_stages(nn::Module& model, std::int64_t inputs, std::int64_t expansion,
                                       const std::vector<StageShape>& shapes) {
  std::vector<nn::Sequential> stages;
  for (const StageShape& shape : shapes) {
    nn::Sequential stage;
    for (std::int64_t i = 0; i < shape.blocks; ++i) {
      stage->push_back(std::make_shared<BlockType>(
          BlockShape{inputs, shape.planes, i == 0 ? shape.stride : 1, shape.width, expansion}));
      inputs = shape.planes * expansion;
    }
    stages.push_back(model.register_module("layer" + std::to_string(stages.size() + 1), stage));
  }
  return stages;
}

struct ResNetShape {
  std::array<std::int64_t, 4> blocks;
  std::int64_t width_factor;  ///< a bottleneck's width divided by its planes; 0: no bottlenecks
};

class ResNet : public Model {
 public:
  ResNet(const ResNetShape& shape, const ModelOptions& options) : has_pool_(options.image_size > kSmallImage) {
    constexpr std::int64_t kPlanes = 64;
    conv1_ = register_module("conv1", has_pool_ ? convolution(3, kPlanes, 7, 2) : convolution(3, kPlanes, 3));
    bn1_ = register_module("bn1", BatchNorm2d(kPlanes));
    relu_ = register_module("relu", relu());
    if (has_pool_) maxpool_ = register_module("maxpool", MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
    const std::int64_t expansion = shape.width_factor == 0 ? 1 : 4;
    std::vector<StageShape> stages;
    std::int64_t planes = kPlanes;
    for (const std::int64_t blocks : shape.blocks) {
      stages.push_back({blocks, planes, planes * shape.width_factor, stages.empty() ? 1 : 2});
      planes *= 2;
    }
    stages_ = add_stages<ResidualBlock>(*this, kPlanes, expansion, stages);
    fc_ = register_module("fc", Linear(stages.back().planes * expansion, options.classes));
    initialise(*this);
  }

  at::Tensor forward(const at::Tensor& input, const at::Tensor& /*extra*/) override {
    at::Tensor x = relu_(bn1_(conv1_(input)));
    if (has_pool_) x = maxpool_(x);
    for (nn::Sequential& stage : stages_) x = stage->forward(x);
    return fc_(x.mean({2, 3}));
  }

 private:
  bool has_pool_;
  Conv2d conv1_{nullptr};
  BatchNorm2d bn1_{nullptr};
  ReLU relu_{nullptr};
  MaxPool2d maxpool_{nullptr};
  std::vector<nn::Sequential> stages_;
  Linear fc_{nullptr};
};

/// A block with a norm and a ReLU before each convolution. If the shape changes, the shortcut begins after the first
/// norm and ReLU.
class PreactBlock : public nn::Module {
 public:
  explicit PreactBlock(const BlockShape& shape) : PreactBlock(shape, shape.steps(), false) {}

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = relus_[0](norms_[0](input));
    const at::Tensor around = downsample_ ? downsample_(begins_at_input_ ? input : x) : input;
    x = convs_[0](x);
    for (std::size_t i = 1; i < convs_.size(); ++i) x = convs_[i](relus_[i](norms_[i](x)));
    return x + around;
  }

 protected:
  PreactBlock(const BlockShape& shape, const std::vector<Step>& steps, bool begins_at_input)
      : begins_at_input_(begins_at_input) {
    for (const Step& step : steps) {
      const std::string number = std::to_string(convs_.size() + 1);
      norms_.push_back(register_module("bn" + number, BatchNorm2d(step.inputs)));
      relus_.push_back(register_module("relu" + number, relu()));
      convs_.push_back(register_module("conv" + number,
                                       convolution(step.inputs, step.outputs, step.kernel, step.stride, step.bias)));
    }
    if (shape.changes_shape()) {
      downsample_ = register_module("downsample", convolution(shape.inputs, shape.outputs(), 1, shape.stride));
    }
  }

 private:
  bool begins_at_input_;  ///< whether a shortcut that changes the shape begins at the block's input
  std::vector<BatchNorm2d> norms_;
  std::vector<ReLU> relus_;
  std::vector<Conv2d> convs_;
  Conv2d downsample_{nullptr};
};

/// The bottleneck of the network that DIVISION trains: its first convolution has the stride, its last one has a bias,
/// and the shortcut begins at the block's input.
class DivisionBlock : public PreactBlock {
 public:
  explicit DivisionBlock(const BlockShape& shape)
      : PreactBlock(shape,
                    {{shape.inputs, shape.width, 1, shape.stride},
                     {shape.width, shape.width, 3, 1},
                     {shape.width, shape.outputs(), 1, 1, true}},
                    true) {}
};

template <class BlockType>
class PreactResNet : public Model {
 public:
  PreactResNet(std::int64_t blocks, bool bottleneck, const ModelOptions& options) {
    constexpr std::int64_t kPlanes = 16;
    const std::int64_t expansion = bottleneck ? 4 : 1;
    conv1_ = register_module("conv1", convolution(3, kPlanes, 3));
    std::vector<StageShape> stages;
    for (const std::int64_t planes : {kPlanes, 2 * kPlanes, 4 * kPlanes}) {
      stages.push_back({blocks, planes, bottleneck ? planes : 0, stages.empty() ? 1 : 2});
    }
    stages_ = add_stages<BlockType>(*this, kPlanes, expansion, stages);
    const std::int64_t outputs = stages.back().planes * expansion;
    bn_ = register_module("bn", BatchNorm2d(outputs));
    relu_ = register_module("relu", relu());
    fc_ = register_module("fc", Linear(outputs, options.classes));
    initialise(*this);
  }

  at::Tensor forward(const at::Tensor& input, const at::Tensor& /*extra*/) override {
    at::Tensor x = conv1_(input);
    for (nn::Sequential& stage : stages_) x = stage->forward(x);
    return fc_(relu_(bn_(x)).mean({2, 3}));
  }

 private:
  Conv2d conv1_{nullptr};
  std::vector<nn::Sequential> stages_;
  BatchNorm2d bn_{nullptr};
  ReLU relu_{nullptr};
  Linear fc_{nullptr};
};

}  // namespace

std::shared_ptr<Model> make_resnet(const ModelOptions& options) {
  static const std::map<std::string, ResNetShape> kShapes = {
      {"resnet18", {{2, 2, 2, 2}, 0}},         {"resnet34", {{3, 4, 6, 3}, 0}},
      {"resnet50", {{3, 4, 6, 3}, 1}},         {"resnet101", {{3, 4, 23, 3}, 1}},
      {"resnet152", {{3, 8, 36, 3}, 1}},       {"wide-resnet50-2", {{3, 4, 6, 3}, 2}},
      {"wide-resnet101-2", {{3, 4, 23, 3}, 2}}};
  return std::make_shared<ResNet>(kShapes.at(options.name), options);
}

std::shared_ptr<Model> make_preact_resnet(const ModelOptions& options) {
  // n blocks per stage make 6 n + 2 layers without bottlenecks and 9 n + 2 with them.
  if (options.name == "division-resnet164") return std::make_shared<PreactResNet<DivisionBlock>>(18, true, options);
  const bool is_deep = options.name == "preact-resnet164";
  return std::make_shared<PreactResNet<PreactBlock>>(is_deep ? 18 : 9, is_deep, options);
}

}  // namespace actzip::models
