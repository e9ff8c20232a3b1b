// A GPU finds an index outside its bound: backward itself must fail, before an optimizer uses its gradients.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "actzip/error.hpp"
#include "session/session_impl.hpp"

namespace actzip::torch {
namespace {

const OperatorInfo kEmbedding{"embedding", {"indices"}};

/// Saves indices with a bound that may be wrong.
struct Lookup : public ::torch::autograd::Function<Lookup> {
  static inline std::shared_ptr<Packed> kept;

  static at::Tensor forward(::torch::autograd::AutogradContext* /*context*/, const at::Tensor& weight,
                            const at::Tensor& indices, SessionImpl* session, std::int64_t bound) {
    OperatorFacts facts;
    facts.index_bound = bound;
    kept =
        std::make_shared<Packed>(session->pack(indices, {&kEmbedding, {0}, nullptr, facts}, session->module_path("")));
    return weight.index_select(0, indices);
  }
  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* /*context*/,
                                                   const ::torch::autograd::variable_list& gradients) {
    const at::Tensor indices = kept->unpack();
    return {at::zeros({100, 4}, gradients[0].options()).index_add_(0, indices, gradients[0]), {}, {}, {}};
  }
};

/// Loaded before the first call that asks torch whether there is a GPU, because torch remembers the answer.
const void* const kCudaLibrary = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL);

class IndexCheckCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    const bool has_gpu = kCudaLibrary != nullptr && ::torch::cuda::is_available();
    const char* const required = std::getenv("ACTZIP_REQUIRE_CUDA");
    if (!has_gpu && required != nullptr && std::string(required) == "1") FAIL() << "no GPU";
    if (!has_gpu) GTEST_SKIP() << "no GPU";
  }
};

TEST_F(IndexCheckCuda, BackwardFails) {
  SessionImpl session(SessionOptions{.preset = "exact", .min_elems = 0});
  const auto options = at::TensorOptions().device(at::kCUDA);
  const at::Tensor weight = at::randn({100, 4}, options).requires_grad_();
  const at::Tensor indices = at::randint(100, {1 << 20}, options.dtype(at::kLong));
  for (const std::int64_t bound : {100, 60}) {
    const at::Tensor busy = at::randn({4096, 4096}, options);
    for (int i = 0; i < 20; ++i) (void)busy.mm(busy);  // so that the host reaches backward before the device does
    const at::Tensor loss = Lookup::apply(weight, indices, &session, bound).sum();
    if (bound == 100) {
      EXPECT_NO_THROW(loss.backward());
    } else {
      EXPECT_THROW(loss.backward(), std::exception);
    }
    Lookup::kept.reset();
  }
  EXPECT_TRUE(session.report().index_overflow);
}

}  // namespace
}  // namespace actzip::torch
