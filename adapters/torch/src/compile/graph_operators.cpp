// actzip's codecs as operators of torch's dispatcher, for compiled graphs. The bytes are those of docs/format.md.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actzip/codec.hpp"
#include "actzip/error.hpp"
#include "base/convert.hpp"
#include "base/memory.hpp"
#include "compile/graph_codes.hpp"
#include "compile/graph_gradients.hpp"
#include "compile/graph_sessions.hpp"
#include "compile/running_graph.hpp"

namespace actzip::torch {

namespace {

using GraphSessionPtr = std::shared_ptr<GraphSession>;

struct DefaultSessions {
  std::mutex mutex;
  ByText<GraphSessionPtr> by_options;
};

DefaultSessions& default_sessions() {
  static auto* sessions = new DefaultSessions;
  return *sessions;
}

/// The sites of graphs that ran lately, by the seeds of each run, which its backward knows too.
class EncodedSites {
 public:
  void put(const RunningGraph& graph) {
    const std::lock_guard lock(mutex_);
    // Seeds are often allocated where those of an earlier run were: that run is over, and this one is the latest.
    if (by_seeds_.contains(graph.seeds)) std::erase(order_, graph.seeds);
    order_.push_back(graph.seeds);
    by_seeds_[graph.seeds] = {graph.session, graph.sites, std::vector<double>(graph.sites.size(), kNever)};
    if (order_.size() <= kMost) return;
    by_seeds_.erase(order_.front());
    order_.pop_front();
  }

  void note_encoded(const void* seeds, std::int64_t line, double kept_at) {
    const std::lock_guard lock(mutex_);
    const auto found = by_seeds_.find(seeds);
    if (found == by_seeds_.end()) return;
    std::vector<double>& times = found->second.kept_at;
    if (const auto at = static_cast<std::size_t>(line); at < times.size()) times[at] = kept_at;
  }

  void note_decoded(const void* seeds, std::int64_t line) {
    const std::lock_guard lock(mutex_);
    const auto found = by_seeds_.find(seeds);
    if (found == by_seeds_.end()) return;
    const Run& run = found->second;
    const auto at = static_cast<std::size_t>(line);
    const GraphSessionPtr session = run.session.lock();
    if (session && at < run.sites.size()) session->note_decoded(run.sites[at], run.kept_at[at]);
  }

 private:
  struct Run {
    std::weak_ptr<GraphSession> session;
    std::vector<SiteId> sites;
    std::vector<double> kept_at;  ///< by site, as the session says
  };
  static constexpr double kNever = -1.0;
  static constexpr std::size_t kMost = 512;  ///< graphs between forward and backward
  std::mutex mutex_;
  std::unordered_map<const void*, Run> by_seeds_;
  std::deque<const void*> order_;  ///< the latest last
};

EncodedSites& encoded_sites() {
  static auto* sites = new EncodedSites;
  return *sites;
}

std::atomic<std::uint64_t> g_decoded{0};
thread_local GraphSessionPtr t_current;
thread_local RunningGraph t_running;

GraphSessionPtr session_for(std::string_view options) {
  if (t_current && t_current->options() == options) return t_current;
  DefaultSessions& sessions = default_sessions();
  const std::lock_guard lock(sessions.mutex);
  const auto found = sessions.by_options.find(options);
  TORCH_CHECK(found != sessions.by_options.end(),
              "actzip: a compiled graph runs whose options this process does not know: ", options,
              " (allowed: graphs of actzip.compile() and actzip.compile_options())");
  return found->second;
}

DType dtype_of(c10::ScalarType type) {
  const auto dtype = to_dtype(type);
  TORCH_CHECK(dtype, "actzip: no codec takes ", type);
  return *dtype;
}

at::Tensor begin(c10::string_view options, c10::string_view sites, at::Device device, at::IntArrayRef sizes) {
  return session_for({options.data(), options.size()})->begin_graph({sites.data(), sites.size()}, device, sizes);
}

at::Tensor encode_tensor(const at::Tensor& tensor, c10::string_view codec, std::int64_t segments,
                         const at::Tensor& seeds, std::int64_t line) {
  const CodecSpec& spec = spec_of(codec);
  const DType dtype = dtype_of(tensor.scalar_type());
  const Shape shape = to_shape(tensor);
  const auto guard = c10::OptionalDeviceGuard(tensor.is_cuda() ? std::optional(tensor.device()) : std::nullopt);
  const Stream stream = current_stream(tensor.device());
  const std::size_t size = encoded_bytes(spec, dtype, shape, {.count = segments});
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(size)}, tensor.options().dtype(at::kByte));
  encode(spec, {tensor.const_data_ptr(), dtype, shape, stream.device()},
         {static_cast<std::byte*>(bytes.mutable_data_ptr()), size, stream.device()},
         seed_of({bytes, codec, segments, seeds, line}), stream, {.count = segments});
  if (t_running.session && t_running.seeds == seeds.const_data_ptr()) {
    const auto kept_at = t_running.session->note_encoded(line, tensor, size);
    if (kept_at) encoded_sites().note_encoded(seeds.const_data_ptr(), line, *kept_at);
  }
  return bytes;
}

at::Tensor decode_tensor(const at::Tensor& bytes, c10::string_view codec, std::int64_t segments,
                         const at::Tensor& seeds, std::int64_t line, at::IntArrayRef size, at::IntArrayRef stride,
                         at::ScalarType type) {
  return decoded({bytes, codec, segments, seeds, line}, size, stride, type);
}

}  // namespace

/// Cached, because graphs pass the text in each call.
const CodecSpec& spec_of(c10::string_view codec) {
  thread_local ByText<CodecSpec> t_known;
  const std::string_view key(codec.data(), codec.size());
  if (const auto found = t_known.find(key); found != t_known.end()) return found->second;
  return t_known.emplace(key, parse_spec(key)).first->second;
}

Seed seed_of(const GraphCode& code) {
  return Seed::at(reinterpret_cast<const std::uint64_t*>(code.seeds.const_data_ptr<std::int64_t>()) + code.line);
}

ConstByteSpan bytes_of(const GraphCode& code) {
  return {static_cast<const std::byte*>(code.bytes.const_data_ptr()), code.bytes.nbytes(),
          to_device(code.bytes.device())};
}

at::Tensor decoded(const GraphCode& code, at::IntArrayRef size, at::IntArrayRef stride, at::ScalarType type) {
  const at::Device device = code.bytes.device();
  const auto guard = c10::OptionalDeviceGuard(device.is_cuda() ? std::optional(device) : std::nullopt);
  const Stream stream = current_stream(device);
  at::Tensor tensor = at::empty_strided(size, stride, code.bytes.options().dtype(type));
  decode(spec_of(code.codec), bytes_of(code),
         {tensor.mutable_data_ptr(), dtype_of(type), to_shape(tensor), stream.device()}, seed_of(code), stream,
         {.count = code.segments});
  note_read(code);
  return tensor;
}

void note_read(const GraphCode& code) {
  ++g_decoded;
  encoded_sites().note_decoded(code.seeds.const_data_ptr(), code.line);
}

const RunningGraph& running_graph() { return t_running; }

void set_running_graph(RunningGraph graph) {
  t_running = std::move(graph);
  encoded_sites().put(t_running);
}

std::uint64_t backwards_of_graphs() { return g_decoded; }

void set_default_graph_session(const GraphSessionPtr& session) {
  DefaultSessions& sessions = default_sessions();
  const std::lock_guard lock(sessions.mutex);
  sessions.by_options[session->options()] = session;
}

GraphSessionPtr exchange_current_graph_session(GraphSessionPtr session) {
  return std::exchange(t_current, std::move(session));
}

/// With needs_fixed_stride_order, Inductor passes tensors with the strides that they had when the graph was traced.
/// Bytes in another memory order would be decoded into the wrong places.
void register_graph_operators() {
  static const bool registered = [] {
    auto* library = new ::torch::Library(::torch::Library::DEF, "actzip", std::nullopt, __FILE__, __LINE__);
    const std::vector<at::Tag> fixed{at::Tag::needs_fixed_stride_order, at::Tag::pt2_compliant_tag};
    library->def("begin(str options, str sites, Device device, SymInt[] sizes=[]) -> Tensor",
                 {at::Tag::nondeterministic_seeded, at::Tag::pt2_compliant_tag});
    library->def("encode(Tensor tensor, str codec, SymInt segments, Tensor seeds, int line) -> Tensor", fixed);
    library->def(
        "decode(Tensor bytes, str codec, SymInt segments, Tensor seeds, int line, SymInt[] size, SymInt[] stride, "
        "ScalarType dtype) -> Tensor",
        fixed);
    define_gradients(*library);
    for (const auto key : {c10::DispatchKey::CPU, c10::DispatchKey::CUDA}) {
      auto* kernels = new ::torch::Library(::torch::Library::IMPL, "actzip", key, __FILE__, __LINE__);
      kernels->impl("encode", &encode_tensor);
      kernels->impl("decode", &decode_tensor);
      implement_gradients(*kernels);
    }
    auto* common = new ::torch::Library(::torch::Library::IMPL, "actzip", c10::DispatchKey::CompositeExplicitAutograd,
                                        __FILE__, __LINE__);
    common->impl("begin", &begin);
    return true;  // libraries are never destroyed, like torch's own
  }();
  (void)registered;
}

}  // namespace actzip::torch
