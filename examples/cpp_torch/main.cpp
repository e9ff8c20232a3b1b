// Compares a small network's gradient with and without compressing what autograd saves. The session has the default
// preset.
#include <torch/torch.h>

#include <actzip/torch.hpp>
#include <cstdio>

namespace {

torch::Tensor gradient(torch::nn::Sequential& net, const torch::Tensor& x, actzip::torch::Session* session) {
  const torch::Tensor labels = torch::arange(x.size(0)).remainder(10);
  net->zero_grad();
  torch::Tensor loss;
  if (session != nullptr) {
    const auto scope = session->scope();
    loss = torch::cross_entropy_loss(net->forward(x), labels);
  } else {
    loss = torch::cross_entropy_loss(net->forward(x), labels);
  }
  loss.backward();
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& parameter : net->parameters()) parts.push_back(parameter.grad().flatten());
  return torch::cat(parts);
}

}  // namespace

int main() {
  torch::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Linear(256, 512), torch::nn::ReLU(),
                            torch::nn::LayerNorm(torch::nn::LayerNormOptions({512})), torch::nn::Linear(512, 10));
  const torch::Tensor x = torch::randn({128, 256});

  actzip::torch::Session session;  // options by designated initialisers: session({.preset = "exact"})
  session.register_parameters(net->parameters());
  const torch::Tensor exact = gradient(net, x, nullptr);
  const torch::Tensor compressed = gradient(net, x, &session);

  const double cosine = torch::cosine_similarity(exact, compressed, 0).item<double>();
  std::printf("%scosine of the gradients: %.4f\n", session.report().to_text().c_str(), cosine);
  return cosine > 0.9 && session.live_bytes() == 0 ? 0 : 1;
}
