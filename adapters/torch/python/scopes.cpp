// `with session:` does several things to torch: the session listens to operators, pushes hooks onto torch's stack and,
// while sites are new, adds global module hooks. No line of Python runs between them, so neither an error nor an
// interrupt can leave part of a scope behind.
#include "scopes.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actzip/error.hpp"
#include "actzip/torch.hpp"
#include "modules.hpp"
#include "observe/running_operators.hpp"
#include "session/session_impl.hpp"

namespace py = pybind11;

namespace actzip::torch {

namespace {

enum class Hooks : bool { left_to_others, pushed };

/// Returns one of torch's functions for its stack of hooks.
py::object torch_hooks(const char* name) { return py::module_::import("torch._C").attr("_autograd").attr(name); }

/// A scope of a Python session, as far as it was entered.
class OpenScope {
 public:
  explicit OpenScope(py::object session)
      : session_(std::move(session)), core_(session_.attr("_core").cast<Session>()) {}
  OpenScope(const OpenScope&) = delete;
  OpenScope& operator=(const OpenScope&) = delete;
  ~OpenScope() {
    try {
      close();
    } catch (...) {  // the first error is already being thrown
    }
  }

  /// Listens to operators that backward runs again. They belong to the last step.
  void resume() {
    runs_again_.emplace();
    const bool needs_modules = resume_listening(core_.impl());
    listens_ = true;
    if (needs_modules) look_at_model(needs_modules);  // parameters are known from forward
  }

  void enter(Hooks hooks) {
    const bool needs_modules = start_listening(core_.impl());
    listens_ = true;
    session_.attr("_has_begun")();
    look_at_model(needs_modules);
    if (hooks == Hooks::left_to_others) return;
    torch_hooks("_push_saved_tensors_default_hooks")(session_.attr("_pack"), session_.attr("_unpack"));
    has_hooks_ = true;
  }

  /// Undoes all of it, even if parts fail, and throws the first error. Does nothing the second time.
  void close() {
    std::exception_ptr fault;
    const auto attempt = [&](auto&& action) {
      try {
        action();
      } catch (...) {
        if (!fault) fault = std::current_exception();
      }
    };
    if (has_hooks_) attempt([&] { session_.attr("_is_leaving")(); });
    if (std::exchange(has_hooks_, false)) attempt([] { torch_hooks("_pop_saved_tensors_default_hooks")(); });
    attempt([&] { modules_.remove(); });
    if (std::exchange(listens_, false)) attempt([&] { stop_listening(*core_.impl()); });
    runs_again_.reset();
    if (fault) std::rethrow_exception(fault);
  }

  [[nodiscard]] bool is_of(py::handle session) const { return session_.is(session); }
  [[nodiscard]] bool has_hooks() const { return has_hooks_; }
  [[nodiscard]] const ModuleWatch& modules() const { return modules_; }

  /// Called when the thread ends, perhaps after Python has shut down.
  void leak() noexcept {
    session_.release();
    modules_.leak();
    has_hooks_ = listens_ = false;
  }

 private:
  /// Registers the model's parameters again in each step, because they may have been replaced or moved.
  void look_at_model(bool needs_modules) {
    const py::object model = session_.attr("_living_model")();
    if (model.is_none()) return;
    if (needs_modules) {
      modules_ = ModuleWatch(core_, model);
    } else {
      actzip::torch::look_at_model(core_, model);
    }
  }

  py::object session_;
  Session core_;
  ModuleWatch modules_;
  std::optional<ModuleRunsAgain> runs_again_;
  bool listens_ = false;
  bool has_hooks_ = false;
};

/// The scopes of one thread, in the order in which they were entered.
struct OpenScopes {
  std::vector<std::unique_ptr<OpenScope>> scopes;

  OpenScopes() = default;
  OpenScopes(const OpenScopes&) = delete;
  OpenScopes& operator=(const OpenScopes&) = delete;
  ~OpenScopes() {
    for (const auto& scope : scopes) scope->leak();
  }
};
thread_local OpenScopes t_open;

py::object enter(py::object session, Hooks hooks) {
  auto& scopes = t_open.scopes;
  session.attr("_prepare")();
  auto scope = std::make_unique<OpenScope>(session);
  scopes.reserve(scopes.size() + 1);
  scope->enter(hooks);
  scopes.push_back(std::move(scope));
  return session;
}

void resume(py::object session) {
  auto& scopes = t_open.scopes;
  auto scope = std::make_unique<OpenScope>(std::move(session));
  scopes.reserve(scopes.size() + 1);
  scope->resume();
  scopes.push_back(std::move(scope));
}

/// Hooks are on a stack: those that were pushed last are popped first.
void leave(py::handle session, Hooks hooks) {
  auto& scopes = t_open.scopes;
  const auto found = std::find_if(scopes.rbegin(), scopes.rend(), [&](const auto& scope) {
    return hooks == Hooks::pushed ? scope->has_hooks() : scope->is_of(session) && !scope->has_hooks();
  });
  if (found == scopes.rend() || !(*found)->is_of(session)) {
    const auto is_own = [&](const auto& scope) { return scope->is_of(session) && scope->has_hooks(); };
    const bool is_below = found != scopes.rend() && std::any_of(scopes.begin(), scopes.end(), is_own);
    throw Error(ErrorCode::invalid_scope, is_below
                                              ? "another session was entered later on this thread: leave that one first"
                                              : "this session is not entered on this thread");
  }
  const std::unique_ptr<OpenScope> scope = std::move(*found);
  scopes.erase(std::prev(found.base()));
  scope->close();
}

/// Called when a session begins to listen inside the model's forward, so that the model's own operators do not count as
/// a loss.
void is_in_forward(py::handle session, py::handle model) {
  const auto& scopes = t_open.scopes;
  const auto found = std::find_if(scopes.rbegin(), scopes.rend(), [&](const auto& s) { return s->is_of(session); });
  if (found != scopes.rend()) (*found)->modules().enter(model);
}

/// Returns a function that becomes a method when it is put into a class, like a Python function.
py::object as_method(const py::object& function) {
  PyObject* method = PyInstanceMethod_New(function.ptr());
  if (method == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(method);
}

}  // namespace

void bind_scopes(py::module_& module) {
  module.attr("enter") =
      as_method(py::cpp_function([](py::object session) { return enter(std::move(session), Hooks::pushed); }));
  module.attr("leave") = as_method(py::cpp_function(
      [](const py::object& session, const py::args& /*exception*/) { leave(session, Hooks::pushed); }));
  module.def("listen", [](py::object session) { enter(std::move(session), Hooks::left_to_others); });
  module.def("resume", &resume);
  module.def("stop_listening", [](const py::object& session) { leave(session, Hooks::left_to_others); });
  module.def("is_in_forward", &is_in_forward);
  module.def("module_hooks", [] { return py::make_tuple(module_hooks().enter, module_hooks().leave); });
  module.def("hide_module_watches", &hide_module_watches);
  module.def("show_module_watches", &show_module_watches);
  module.def("open_scopes", [] { return t_open.scopes.size(); });
}

}  // namespace actzip::torch
