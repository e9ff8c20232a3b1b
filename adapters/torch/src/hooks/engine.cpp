#include "hooks/engine.hpp"

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <atomic>
#include <utility>
#include <vector>

#include "actzip/torch.hpp"
#include "base/backward.hpp"
#include "encoded/encoded_tensor.hpp"
#include "observe/running_operators.hpp"

namespace actzip::torch {

namespace {

using ::torch::autograd::edge_list;
using ::torch::autograd::Engine;
using ::torch::autograd::SavedVariableHooks;
using ::torch::autograd::variable_list;

/// The hooks of one saved variable in one of our scopes.
class Hooks final : public SavedVariableHooks {
 public:
  explicit Hooks(std::shared_ptr<SessionImpl> session) : session_(std::move(session)) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    packed_ = session_->pack(tensor);
    session_.reset();
  }
  at::Tensor call_unpack_hook() override { return for_current_node(packed_.settled()); }
  /// Compiled autograd calls this to get Python functions that it can trace.
  std::optional<std::pair<c10::SafePyObject, c10::SafePyObject>> retrieve_unpack_hook_data() const override {
    refuse_compiled_autograd();
  }

 private:
  std::shared_ptr<SessionImpl> session_;  ///< until it has packed; a session may be destroyed before backward
  Packed packed_;
};

/// Scopes of C++ programs on this thread. Scopes of Python programs are on torch's own stack.
thread_local std::vector<std::shared_ptr<SessionImpl>> t_scopes;

std::atomic<SessionOfHook> g_session_of{nullptr};

Saving saving_with(const at::impl::SavedTensorDefaultHooksTLS& tls) {
  if (tls.is_tracing) return {nullptr, true};
  if (!t_scopes.empty()) return {t_scopes.back(), false};
  if (tls.stack.empty()) return {};
  const SessionOfHook session_of = g_session_of.load(std::memory_order_acquire);
  if (session_of == nullptr) return {nullptr, true};
  const auto& pack_hook = tls.stack.top().first;
  auto session = session_of(pack_hook.ptr(&pack_hook.pyinterpreter()));
  const bool is_others = session == nullptr;
  return {std::move(session), is_others};
}

class ForwardingEngine final : public Engine {
 public:
  explicit ForwardingEngine(Engine& inner) : inner_(&inner) {}
  ~ForwardingEngine() override { stop(); }

  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    auto saving = saving_with(at::SavedTensorDefaultHooks::get_tls_state());
    if (saving.session) return std::make_unique<Hooks>(std::move(saving.session));
    return inner_->get_default_saved_variable_hooks();
  }

  variable_list execute(const edge_list& roots, const variable_list& inputs, bool keep_graph, bool create_graph,
                        bool accumulate_grad, const edge_list& outputs) override {
    return inner_->execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<::torch::autograd::GraphTask>& graph_task, NodePtr graph_root,
      ::torch::autograd::InputBuffer&& input_buffer) override {
    return inner_->execute_with_graph_task(graph_task, std::move(graph_root), std::move(input_buffer));
  }
  std::unique_ptr<::torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return inner_->make_anomaly_metadata();
  }
  void thread_on_exception(const std::shared_ptr<::torch::autograd::GraphTask>& graph_task, const NodePtr& node,
                           std::exception& error) override {
    inner_->thread_on_exception(graph_task, node, error);
  }
  void thread_init(int device, const std::shared_ptr<::torch::autograd::ReadyQueue>& ready_queue,
                   bool should_increment) override {
    inner_->thread_init(device, ready_queue, should_increment);
  }

 private:
  Engine* inner_;
};

Engine* g_engine = nullptr;

}  // namespace

Saving who_saves() {
  const auto& tls = at::SavedTensorDefaultHooks::get_tls_state();
  return tls.disabled_error_message ? Saving{nullptr, true} : saving_with(tls);
}

void install_engine() {
  static const bool installed = [] {
    install_encoded_tensors();                                      // first: if it throws, nothing has changed
    g_engine = new ForwardingEngine(Engine::get_default_engine());  // never destroyed, like torch's own
    ::torch::autograd::set_default_engine_stub([]() -> Engine& { return *g_engine; });
    return true;
  }();
  (void)installed;
}

void set_session_of_hook(SessionOfHook session_of) { g_session_of.store(session_of, std::memory_order_release); }

Scope::Scope(std::shared_ptr<SessionImpl> session) {
  t_scopes.reserve(t_scopes.size() + 1);
  session->believe_guard();  // before the step begins: the warning below may be an error
  if (const std::string notice = session->take_notice(); !notice.empty()) TORCH_WARN(notice);
  start_listening(session);
  t_scopes.push_back(std::move(session));
}

Scope::~Scope() {
  const std::shared_ptr<SessionImpl> session = std::move(t_scopes.back());
  t_scopes.pop_back();
  stop_listening(*session);
}

Session::Session(const SessionOptions& options) : impl_(std::make_shared<SessionImpl>(options)) { install_engine(); }

Scope Session::scope() { return Scope(impl_); }

void Session::register_parameters(at::TensorList tensors) {
  for (const at::Tensor& tensor : tensors) impl_->parameters.add(tensor);
}

void Session::samples(const at::Tensor& indices) { impl_->samples->set_next(indices); }

Report Session::report() const { return impl_->report(); }

std::size_t Session::live_bytes() const { return impl_->core().live_bytes(); }

std::string Session::save_state() { return impl_->save_state(); }

void Session::load_state(std::string_view text) { impl_->core().load_state(text); }

}  // namespace actzip::torch
