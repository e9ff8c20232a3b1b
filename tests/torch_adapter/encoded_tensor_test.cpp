// Encoded tensors as arguments of torch's operators. On the CPU no kernel reads the bytes: operators get the decoded
// values, and must give the same results as with these.
#include "encoded/encoded_tensor.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "encoded/encoded_backward.hpp"
#include "session/session_impl.hpp"

namespace actzip::torch {
namespace {

const OperatorInfo kOperator{"test", {"self"}};

/// Packs a tensor as a session does for a node.
Packed packed(const at::Tensor& tensor, const std::string& codec) {
  SessionImpl session({.preset = codec, .min_elems = 0});
  const at::NoGradGuard no_graph;
  return session.pack(tensor, {&kOperator, {0}, nullptr, {}}, session.module_path("module"));
}

class EncodedTensors : public ::testing::Test {
 protected:
  void SetUp() override {
    install_encoded_tensors();
    ::torch::manual_seed(0);
    x_ = ::torch::randn({4, 8, 6, 6}).contiguous(at::MemoryFormat::ChannelsLast);
    gradient_ = ::torch::randn_like(x_);
    const Packed kept = packed(x_, "rotated:4");
    values_ = kept.unpack();
    encoded_ = encoded_tensor({kept});
  }

  at::Tensor x_;
  at::Tensor gradient_;
  at::Tensor values_;
  at::Tensor encoded_;
};

TEST_F(EncodedTensors, HaveEverythingButMemory) {
  EXPECT_EQ(encoded_.sizes(), x_.sizes());
  EXPECT_EQ(encoded_.strides(), x_.strides());
  EXPECT_EQ(encoded_.suggest_memory_format(), at::MemoryFormat::ChannelsLast);
  EXPECT_EQ(encoded_.options().dtype(), x_.dtype());
  EXPECT_EQ(encoded_.device(), x_.device());
  EXPECT_TRUE(encoded_.is_cpu());
  EXPECT_FALSE(encoded_.has_storage());
  EXPECT_ANY_THROW((void)encoded_.data_ptr());
  EXPECT_EQ(encoded_in(x_), nullptr);
  EXPECT_EQ(encoded_in(at::Tensor()), nullptr);
}

TEST_F(EncodedTensors, SurviveACopyOfTheirHandle) {
  const at::Tensor variable = ::torch::autograd::make_variable(encoded_, /*requires_grad=*/true);
  ASSERT_NE(encoded_in(variable), nullptr);
  EXPECT_EQ(variable.sizes(), x_.sizes());
  EXPECT_TRUE(::torch::equal(decoded(variable), values_));
}

TEST_F(EncodedTensors, AreDecodedForOperatorsThatDoNotKnowThem) {
  EXPECT_FALSE(::torch::equal(values_, x_));  // otherwise the comparisons below would prove nothing
  EXPECT_TRUE(::torch::equal(encoded_ + gradient_, values_ + gradient_));
  const std::vector<std::int64_t> dimensions{0, 2};
  EXPECT_TRUE(::torch::equal(encoded_.sum(dimensions), values_.sum(dimensions)));
  EXPECT_TRUE(::torch::equal(encoded_.permute({1, 0, 2, 3}).contiguous(), values_.permute({1, 0, 2, 3}).contiguous()));
  const std::vector<at::Tensor> list{gradient_, encoded_};
  EXPECT_TRUE(::torch::equal(at::cat(list), at::cat({gradient_, values_})));
  EXPECT_NE(encoded_in(list[1]), nullptr);
  at::Tensor target = at::zeros_like(x_);
  target.copy_(encoded_);
  EXPECT_TRUE(::torch::equal(target, values_));
}

TEST_F(EncodedTensors, GiveBackwardWhatTheirValuesGive) {
  EXPECT_TRUE(::torch::equal(at::threshold_backward(gradient_, encoded_, 0),  //
                             at::threshold_backward(gradient_, values_, 0)));
  EXPECT_TRUE(::torch::equal(at::gelu_backward(gradient_, encoded_), at::gelu_backward(gradient_, values_)));
  EXPECT_TRUE(::torch::equal(at::silu_backward(gradient_, encoded_), at::silu_backward(gradient_, values_)));
  const at::Tensor weight = ::torch::rand({8});
  const at::Tensor mean = values_.mean({0, 2, 3});
  const at::Tensor rstd = ::torch::rand({8});
  const auto norm = [&](const at::Tensor& input, bool train) {
    return at::native_batch_norm_backward(gradient_, input, weight, mean, rstd, mean, rstd, train, 1e-5,
                                          {true, true, true});
  };
  for (const bool train : {true, false}) {
    EXPECT_TRUE(::torch::equal(std::get<0>(norm(encoded_, train)), std::get<0>(norm(values_, train))));
    EXPECT_TRUE(::torch::equal(std::get<1>(norm(encoded_, train)), std::get<1>(norm(values_, train))));
  }
}

TEST_F(EncodedTensors, StayEncodedInTheGradientOfASquare) {
  const at::Tensor twice = at::Scalar(2) * encoded_.pow(1);  // as in torch's formula
  ASSERT_NE(encoded_in(twice), nullptr);
  EXPECT_EQ(encoded_in(twice)->scale, 2.0);
  EXPECT_TRUE(::torch::equal(gradient_ * twice, gradient_ * (2 * values_)));
  EXPECT_TRUE(::torch::equal(encoded_.pow(3), values_.pow(3)));
  EXPECT_TRUE(::torch::equal(gradient_ * encoded_, gradient_ * values_));
  EXPECT_TRUE(::torch::equal(encoded_ * gradient_, values_ * gradient_));
  EXPECT_TRUE(::torch::equal(encoded_ * encoded_, values_ * values_));
  const at::Tensor sparse = at::threshold(gradient_, 1.0, 0.0).to_sparse();
  EXPECT_TRUE(::torch::equal((sparse * encoded_).to_dense(), (sparse * values_).to_dense()));
  EXPECT_TRUE(::torch::equal(at::gelu_backward(gradient_, twice), at::gelu_backward(gradient_, 2 * values_)));
}

TEST_F(EncodedTensors, MayBeMasks) {
  const Packed kept = packed(::torch::rand({1000}) < 0.3, "default");
  const at::Tensor gradient = ::torch::randn({1000});
  EXPECT_TRUE(::torch::equal(at::native_dropout_backward(gradient, encoded_tensor({kept}), 2.5),
                             at::native_dropout_backward(gradient, kept.unpack(), 2.5)));
}

TEST_F(EncodedTensors, GoToNodesThatCallKnownOperators) {
  namespace F = ::torch::nn::functional;
  const at::Tensor x = ::torch::randn({16, 8}).requires_grad_();
  const std::vector<at::Tensor> known{
      at::relu(x),
      at::threshold(x, 0.5, 0.0),
      at::gelu(x),
      at::silu(x),
      x * at::sin(x),
      x.pow(2),
      std::get<0>(at::native_dropout(x, 0.5, true)),
      F::batch_norm(x, {}, {}, F::BatchNormFuncOptions().training(true)),
  };
  for (const at::Tensor& result : known) {
    for (int again = 0; again < 2; ++again) {
      EXPECT_TRUE(calls_known_operator(*result.grad_fn())) << result.grad_fn()->name();
    }
  }
  for (const at::Tensor& result : {x + 1, at::sigmoid(x), x.t(), at::leaky_relu(x)}) {
    EXPECT_FALSE(calls_known_operator(*result.grad_fn())) << result.grad_fn()->name();
  }
}

TEST_F(EncodedTensors, NoticeThatTheirSourceWasModified) {
  const Packed kept = packed(x_, "rotated:4");
  x_.add_(1);
  EXPECT_ANY_THROW((void)encoded_tensor({kept}));
}

}  // namespace
}  // namespace actzip::torch
