#include "saver.hpp"

#include <Python.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <unwind.h>

#include <cstdlib>
#include <memory>
#include <unordered_map>

#include "python_tensors.hpp"

namespace actzip::paddle_adapter {

namespace {

// The native stack.

/// What is known of a code address.
struct CodePlace {
  bool is_paddles = false;
  std::string op;  ///< if the address is in an operator, which saves each tensor at another address
  int slot = 0;
};

/// Returns the address at which Paddle's library is loaded.
void* paddle_library() {
  static void* const base = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&paddle::pybind::CastPyArg2Tensor), &info);
    return info.dli_fbase;
  }();
  return base;
}

/// "conv2d" for conv2d_ad_func(paddle::Tensor const&, ...), "sparse::relu" for sparse::relu_ad_func(...).
std::string operator_in(const char* symbol) {
  constexpr std::string_view kSuffix = "_ad_func";
  if (symbol == nullptr || std::string_view(symbol).find(kSuffix) == std::string_view::npos) return "";
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(symbol, nullptr, nullptr, nullptr),
                                                         &std::free);
  if (!text) return "";
  const std::string_view name = std::string_view(text.get()).substr(0, std::string_view(text.get()).find('('));
  return name.ends_with(kSuffix) ? std::string(name.substr(0, name.size() - kSuffix.size())) : "";
}

/// Guarded by the GIL, like all mutable state below.
const CodePlace& place_at(void* address) {
  static auto* const known = new std::unordered_map<void*, CodePlace>;
  static auto* const slots = new std::unordered_map<std::string, int>;
  const auto [found, is_new] = known->try_emplace(address);
  if (!is_new) return found->second;
  Dl_info info{};
  CodePlace& place = found->second;
  if (dladdr(address, &info) == 0 || info.dli_fbase != paddle_library()) return place;
  place.is_paddles = true;
  place.op = operator_in(info.dli_sname);
  if (!place.op.empty()) place.slot = (*slots)[place.op]++;
  return place;
}

/// The operator is the first on the stack between the hook and the caller of Paddle.
struct Search {
  bool is_in_paddle = false;
  const CodePlace* found = nullptr;
};

/// Inspects one frame. Ends the search as early as possible, because each frame costs a quarter of a microsecond.
_Unwind_Reason_Code look_at_frame(_Unwind_Context* context, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  const CodePlace& place = place_at(reinterpret_cast<void*>(_Unwind_GetIP(context)));
  if (search.is_in_paddle && !place.is_paddles) return _URC_END_OF_STACK;
  search.is_in_paddle = place.is_paddles;
  if (place.op.empty()) return _URC_NO_REASON;
  search.found = &place;
  return _URC_END_OF_STACK;
}

/// Returns the address in the operator that saves; null for a PyLayer.
const CodePlace* saving_place() {
  Search search;
  _Unwind_Backtrace(&look_at_frame, &search);
  return search.found;
}

// The Python frame.

/// What is known of a Python function. Code objects in the cache are kept alive, so that no other gets the same
/// address.
struct Function {
  std::string name;  ///< if it is in paddle.nn.functional
  bool is_grad = false;
};

Function read_function(PyCodeObject* code) {
  const char* const file = PyUnicode_AsUTF8(code->co_filename);
  const char* const name = PyUnicode_AsUTF8(code->co_name);
  if (file == nullptr || name == nullptr) {
    PyErr_Clear();
    return {};
  }
  const std::string_view path(file);
  Function function;
  if (path.find("/paddle/nn/functional/") != std::string_view::npos) function.name = name;
  function.is_grad = path.ends_with("/paddle/base/dygraph/base.py") && std::string_view(name) == "grad";
  return function;
}

const Function& current_function() {
  static const auto* const kNone = new Function;
  static auto* const known = new std::unordered_map<PyCodeObject*, Function>;
  PyFrameObject* const frame = PyEval_GetFrame();
  if (frame == nullptr) return *kNone;
  PyCodeObject* const code = PyFrame_GetCode(frame);
  const auto [found, is_new] = known->try_emplace(code);
  if (is_new) {
    found->second = read_function(code);
  } else {
    Py_DECREF(code);
  }
  return found->second;
}

const Operator* operator_named(std::string_view name) {
  static auto* const known = new std::unordered_map<std::string, std::unique_ptr<Operator>>;
  auto& op = (*known)[std::string(name)];
  if (!op) op = std::make_unique<Operator>(Operator{std::string(name), find_operator(name), false});
  return op.get();
}

}  // namespace

Saver current_saver(int rank) {
  static const auto* const kPyLayer = new Operator{"PyLayer", nullptr, true};
  const CodePlace* const place = saving_place();
  if (place == nullptr) return {kPyLayer, 0};
  // Names are built once for each address and meaning.
  struct Meanings {
    const Operator* usual = nullptr;
    bool has_others = false;
  };
  static auto* const known = new std::unordered_map<const CodePlace*, Meanings>;
  const auto [found, is_new] = known->try_emplace(place);
  if (is_new) found->second = {operator_named(place->op), has_meanings(place->op)};
  if (!found->second.has_others) return {found->second.usual, place->slot};
  return {operator_named(meaning_of(place->op, current_function().name, rank)), place->slot};
}

bool is_differentiated_again() {
  if (!current_function().is_grad) return false;
  PyObject* const locals = PyObject_GetAttrString(reinterpret_cast<PyObject*>(PyEval_GetFrame()), "f_locals");
  PyObject* const value = locals == nullptr ? nullptr : PyMapping_GetItemString(locals, "create_graph");
  const bool again = value != nullptr && PyObject_IsTrue(value) == 1;
  Py_XDECREF(value);
  Py_XDECREF(locals);
  PyErr_Clear();
  return again;
}

}  // namespace actzip::paddle_adapter
