// actzip's modules in LibTorch programs, compared with torch's own, without Python.
#include "actzip/torch_nn.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

namespace {

namespace nn = actzip::torch::nn;
namespace plain = torch::nn;

/// Returns the gradients of a weighted sum of the result.
std::vector<torch::Tensor> gradients(plain::Module& module, const torch::Tensor& result, const torch::Tensor& input) {
  std::vector<torch::Tensor> wanted;
  if (input.requires_grad()) wanted.push_back(input);
  for (const torch::Tensor& parameter : module.parameters()) wanted.push_back(parameter);
  const torch::Tensor weights = torch::linspace(-1, 1, result.numel(), result.options()).view(result.sizes());
  return torch::autograd::grad({result}, wanted, {weights});
}

/// With the same weights and the preset `exact`, both modules must give the same results and gradients bit for bit, and
/// ours must have its own node.
template <class Ours, class Theirs>
void expect_same(Ours ours, Theirs theirs, const torch::Tensor& input) {
  const torch::NoGradGuard no_graph;
  for (const auto& item : theirs->named_parameters()) ours->named_parameters()[item.key()].copy_(item.value());
  for (const auto& item : theirs->named_buffers()) ours->named_buffers()[item.key()].copy_(item.value());
  const actzip::torch::Session session({.preset = "exact", .min_elems = 0});
  nn::keep_with(*ours, session);
  const torch::AutoGradMode graph(true);
  torch::manual_seed(1);
  const torch::Tensor expected = theirs->forward(input);
  torch::manual_seed(1);
  const torch::Tensor actual = ours->forward(input);
  ASSERT_TRUE(actual.grad_fn()->name().starts_with("Actzip")) << actual.grad_fn()->name();
  EXPECT_TRUE(torch::equal(actual, expected));
  const auto expected_gradients = gradients(*theirs, expected, input);
  const auto actual_gradients = gradients(*ours, actual, input);
  ASSERT_EQ(actual_gradients.size(), expected_gradients.size());
  for (std::size_t i = 0; i < actual_gradients.size(); ++i) {
    EXPECT_TRUE(torch::equal(actual_gradients[i], expected_gradients[i])) << i;
  }
  for (const auto& item : theirs->named_buffers()) {
    EXPECT_TRUE(torch::equal(ours->named_buffers()[item.key()], item.value())) << item.key();
  }
  EXPECT_EQ(session.live_bytes(), 0U);
}

torch::Tensor random(torch::IntArrayRef sizes) { return torch::randn(sizes).requires_grad_(); }

TEST(TorchModules, GiveWhatTorchGives) {
  torch::manual_seed(0);
  const auto conv = plain::Conv2dOptions(4, 6, 3).stride(2).padding(1).groups(2);
  expect_same(nn::Conv2d(conv), plain::Conv2d(conv), random({2, 4, 9, 9}));
  expect_same(nn::Conv1d(4, 6, 3), plain::Conv1d(4, 6, 3), random({2, 4, 9}));
  expect_same(nn::Conv3d(2, 3, 2), plain::Conv3d(2, 3, 2), random({2, 2, 4, 4, 4}));
  const auto transposed = plain::ConvTranspose2dOptions(4, 4, 3).stride(2).output_padding(1);
  expect_same(nn::ConvTranspose2d(transposed), plain::ConvTranspose2d(transposed), random({2, 4, 5, 5}));
  expect_same(nn::Linear(5, 7), plain::Linear(5, 7), random({3, 5}));
  expect_same(nn::Embedding(10, 4), plain::Embedding(10, 4), torch::arange(8));
  expect_same(nn::BatchNorm2d(4), plain::BatchNorm2d(4), random({3, 4, 3, 3}));
  const auto cumulative = plain::BatchNorm1dOptions(4).momentum(std::nullopt);
  expect_same(nn::BatchNorm1d(cumulative), plain::BatchNorm1d(cumulative), random({6, 4}));
  expect_same(nn::LayerNorm(plain::LayerNormOptions({6})), plain::LayerNorm(plain::LayerNormOptions({6})),
              random({3, 6}));
  expect_same(nn::GroupNorm(2, 4), plain::GroupNorm(2, 4), random({3, 4, 5}));
  expect_same(nn::ReLU(), plain::ReLU(), random({4, 5}));
  expect_same(nn::LeakyReLU(), plain::LeakyReLU(), random({4, 5}));
  expect_same(nn::GELU(), plain::GELU(), random({4, 5}));
  expect_same(nn::SiLU(), plain::SiLU(), random({4, 5}));
  expect_same(nn::Dropout(0.3), plain::Dropout(0.3), random({8, 9}));
  const auto pool = plain::MaxPool2dOptions(3).stride(2).padding(1);
  expect_same(nn::MaxPool2d(pool), plain::MaxPool2d(pool), random({2, 3, 9, 9}));
  expect_same(nn::MaxPool1d(2), plain::MaxPool1d(2), random({2, 3, 9}));
  expect_same(nn::MaxPool3d(2), plain::MaxPool3d(2), random({2, 3, 4, 4, 4}));
  expect_same(nn::AvgPool2d(2), plain::AvgPool2d(2), random({2, 3, 8, 8}));
  expect_same(nn::AvgPool1d(2), plain::AvgPool1d(2), random({2, 3, 8}));
  expect_same(nn::AvgPool3d(2), plain::AvgPool3d(2), random({2, 3, 4, 4, 4}));
}

plain::Sequential network() {
  torch::manual_seed(0);
  return plain::Sequential(nn::Conv2d(plain::Conv2dOptions(3, 16, 3).padding(1)), nn::BatchNorm2d(16), nn::ReLU(),
                           nn::Conv2d(16, 8, 3));
}

TEST(TorchModules, DeriveAndReport) {
  auto net = network();
  actzip::torch::Session session;
  nn::keep_with(*net, session);
  const torch::Tensor x = torch::randn({8, 3, 16, 16});
  for (int step = 0; step < 3; ++step) {
    actzip::torch::begin_step(session);
    const torch::Tensor result = net->forward(x);
    EXPECT_GT(session.live_bytes(), 0U);
    result.sum().backward();
    EXPECT_EQ(session.live_bytes(), 0U);
  }
  const actzip::Report report = session.report();
  ASSERT_EQ(report.sites.size(), 4U);
  EXPECT_EQ(report.sites[1].site, "1: batch_norm.input");
  EXPECT_EQ(report.sites[3].codec, "derived");
}

TEST(TorchModules, WithoutASessionKeepWithTheScopeOrTheDefault) {
  auto net = network();
  const torch::Tensor x = torch::randn({8, 3, 16, 16});
  actzip::torch::Session session;
  torch::Tensor loss;
  {
    const auto scope = session.scope();
    loss = net->forward(x).sum();
  }
  EXPECT_EQ(session.report().sites.size(), 4U);
  loss.backward();
  loss = net->forward(x).sum();
  EXPECT_GT(actzip::torch::default_session().live_bytes(), 0U);
  loss.backward();
  EXPECT_EQ(actzip::torch::default_session().live_bytes(), 0U);
}

}  // namespace
