#include "compile/graph_sessions.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "actzip/error.hpp"
#include "base/backward.hpp"
#include "base/convert.hpp"
#include "compile/running_graph.hpp"

namespace actzip::torch {

namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

[[noreturn]] void refuse(std::string_view what, std::string_view text) {
  throw Error(ErrorCode::invalid_state, "compiled graph: '" + std::string(text) + "' is no " + std::string(what));
}

/// Returns the value of an enumeration whose text is `text`. Its values are the numbers below `count`.
template <class Value>
Value parse_value(std::string_view text, int count, std::string_view what) {
  for (int i = 0; i < count; ++i) {
    if (to_string(static_cast<Value>(i)) == text) return static_cast<Value>(i);
  }
  refuse(what, text);
}

template <class Number>
Number parse_number(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  if (text.empty() || std::from_chars(text.data(), end, number).ptr != end) refuse("number", text);
  return number;
}

Shape dense_shape(c10::IntArrayRef sizes) {
  Shape shape;
  shape.rank = static_cast<int>(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    shape.sizes[d] = sizes[d];
    shape.strides[d] = stride;
    stride *= sizes[d];
  }
  return shape;
}

Shape parse_shape(std::string_view text) {
  if (text.empty()) return {};
  std::vector<std::int64_t> sizes;
  for (const std::string_view size : split(text, 'x')) sizes.push_back(parse_number<std::int64_t>(size));
  if (sizes.size() > kMaxRank) refuse("shape", text);
  return dense_shape(sizes);
}

GraphSite parse_graph_site(std::string_view line) {
  constexpr std::size_t kFields = 12;
  constexpr int kKinds = static_cast<int>(SiteKind::encoded) + 1;
  const auto fields = split(line, '\t');
  if (fields.size() != kFields) refuse("description of a saved tensor", line);
  const auto use = parse_use(fields[3]);
  if (!use) refuse("use", fields[3]);
  const bool is_resized = fields[8].starts_with('~');
  return {.module = std::string(fields[0]),
          .op = std::string(fields[1]),
          .slot = std::string(fields[2]),
          .use = *use,
          .kind = parse_value<SiteKind>(fields[4], kKinds, "kind of site"),
          .spec = parse_spec(fields[5]),
          .cause = parse_value<Cause>(fields[6], static_cast<int>(kCauses.size()), "cause"),
          .dtype = parse_dtype(std::string(fields[7])),
          .shape = parse_shape(is_resized ? fields[8].substr(1) : fields[8]),
          .is_resized = is_resized,
          .before = parse_number<std::size_t>(fields[9]),
          .after = parse_number<std::size_t>(fields[10]),
          .reason = std::string(fields[11])};
}

/// Parses each text once. The results are never freed, because reports refer to their reasons.
const std::vector<GraphSite>& graph_sites(std::string_view text) {
  static auto* mutex = new std::mutex;
  static auto* known = new ByText<std::vector<GraphSite>>;
  const std::lock_guard lock(*mutex);
  if (const auto found = known->find(text); found != known->end()) return found->second;
  return known->emplace(text, parse_graph_sites(text)).first->second;
}

bool same_sizes(const Shape& a, const Shape& b) {
  return a.rank == b.rank && std::equal(a.sizes.begin(), a.sizes.begin() + a.rank, b.sizes.begin());
}

int key_of(c10::Device device) { return device.is_cuda() ? device.index() : -1; }

}  // namespace

std::vector<GraphSite> parse_graph_sites(std::string_view text) {
  std::vector<GraphSite> sites;
  if (text.empty()) return sites;
  for (const std::string_view line : split(text, '\n')) sites.push_back(parse_graph_site(line));
  return sites;
}

/// The step itself begins when a graph runs. While CUDA graphs are replayed none does, and the report stays.
void GraphSession::begin_step() {
  const std::lock_guard lock(mutex_);
  is_announced_ = true;
}

/// Graphs that a checkpoint runs again during backward belong to the step whose backward runs.
void GraphSession::begin_step_if_due() {
  const std::lock_guard lock(mutex_);
  const bool is_after_backward = !is_in_backward() && backwards_of_graphs() != backward_seen_;
  if (has_begun_ && !is_announced_ && !is_after_backward) return;
  is_announced_ = false;
  has_begun_ = true;
  backward_seen_ = backwards_of_graphs();
  for (Name& name : names_) name.repetitions = 0;
  session_.begin_step();
}

at::Tensor GraphSession::begin_graph(std::string_view text, c10::Device device, c10::IntArrayRef sizes) {
  const std::vector<GraphSite>& lines = graph_sites(text);
  begin_step_if_due();
  ++graphs_begun_;
  RunningGraph graph{.session = shared_from_this(), .lines = &lines, .sites = next_sites(lines)};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto rank = static_cast<std::size_t>(lines[i].shape.rank);
    if (lines[i].is_resized && sizes.size() >= rank) {
      note_resized(graph.sites[i], lines[i], sizes.slice(0, rank));
      sizes = sizes.slice(rank);
    } else {
      note(graph.sites[i], lines[i], lines[i].shape, lines[i].before, lines[i].after);
    }
  }
  at::Tensor seeds = next_seeds(std::max<std::int64_t>(1, static_cast<std::int64_t>(lines.size())), device);
  graph.seeds = seeds.const_data_ptr();
  set_running_graph(std::move(graph));
  return seeds;
}

std::optional<double> GraphSession::note_encoded(std::int64_t line, const at::Tensor& tensor, std::size_t bytes) {
  const RunningGraph& graph = running_graph();
  const auto at = static_cast<std::size_t>(line);
  if (at >= graph.sites.size()) return std::nullopt;
  const double kept_at = session_.note_made(graph.sites[at]);
  const GraphSite& site = (*graph.lines)[at];
  const Shape shape = to_shape(tensor);
  if (!same_sizes(shape, site.shape)) {
    const std::size_t before = static_cast<std::size_t>(tensor.numel()) * dtype_bytes(site.dtype);
    note(graph.sites[at], site, shape, site.before == 0 ? 0 : before, bytes);
  }
  return kept_at;
}

/// Blocks that share a graph have the same names for their sites, so they are told apart by their order.
std::vector<SiteId> GraphSession::next_sites(const std::vector<GraphSite>& lines) {
  const std::lock_guard lock(mutex_);
  std::vector<SiteId> sites;
  sites.reserve(lines.size());
  const std::vector<std::size_t>& numbers = names_of(lines);
  for (std::size_t i = 0; i < lines.size(); ++i) sites.push_back(next_site(names_[numbers[i]], lines[i]));
  return sites;
}

/// Requires the mutex. Names are built when a graph runs for the first time, not in every step.
const std::vector<std::size_t>& GraphSession::names_of(const std::vector<GraphSite>& lines) {
  const auto [entry, is_new] = names_of_graph_.try_emplace(&lines);
  if (!is_new && entry->second.size() == lines.size()) return entry->second;
  entry->second.clear();
  for (const GraphSite& line : lines) {
    const auto [number, is_new_name] =
        name_numbers_.try_emplace(line.module + ": " + line.op + '.' + line.slot, names_.size());
    if (is_new_name) names_.emplace_back();
    entry->second.push_back(number->second);
  }
  return entry->second;
}

/// Requires the mutex. Makes a new site if another use saves under this name now.
SiteId GraphSession::next_site(Name& name, const GraphSite& line) {
  const auto ordinal = static_cast<std::size_t>(name.repetitions++);
  if (ordinal < name.sites.size() && name.sites[ordinal].second == line.use) return name.sites[ordinal].first;
  const SiteId site = session_.site({line.module, line.op, line.slot, static_cast<int>(ordinal), line.use});
  if (ordinal >= name.sites.size()) name.sites.resize(ordinal + 1);
  name.sites[ordinal] = {site, line.use};
  return site;
}

void GraphSession::note(SiteId id, const GraphSite& site, const Shape& shape, std::size_t before, std::size_t after) {
  SavedTensor saved;
  saved.view.dtype = site.dtype;
  saved.view.shape = shape;
  saved.bytes = before;
  session_.note(id, saved,
                {.kind = site.kind, .spec = site.spec, .bytes = after, .reason = site.reason, .cause = site.cause});
  if (after > 0 && site.kind != SiteKind::encoded) session_.note_made(id);
}

/// For a tensor that is not encoded: it is kept whole or not at all.
void GraphSession::note_resized(SiteId id, const GraphSite& site, c10::IntArrayRef sizes) {
  const Shape shape = dense_shape(sizes);
  const auto bytes = static_cast<std::size_t>(unique_elems(shape)) * dtype_bytes(site.dtype);
  note(id, site, shape, site.before == 0 ? 0 : bytes, site.after == 0 ? 0 : bytes);
}

void GraphSession::prepare(c10::Device device) {
  const std::lock_guard lock(mutex_);
  counter(device);
}

/// Requires the mutex. The counter is advanced on the device, so that replays of a CUDA graph advance it as well.
at::Tensor& GraphSession::counter(c10::Device device) {
  at::Tensor& counter = counters_[key_of(device)];
  if (!counter.defined()) {
    counter = at::zeros({1}, at::TensorOptions(device).dtype(at::kLong));
    counter.fill_(static_cast<std::int64_t>(spread_seed(seed_start(seed_))));
  }
  return counter;
}

/// Returns consecutive multiples of an odd number, none of which occurs twice; the codecs hash all bits of them. Does
/// not use torch's generators.
at::Tensor GraphSession::next_seeds(std::int64_t count, c10::Device device) {
  const std::lock_guard lock(mutex_);
  at::Tensor& last = counter(device);
  at::Tensor seeds = at::arange(1, count + 1, last.options());
  seeds.mul_(static_cast<std::int64_t>(kSeedStep)).add_(last);
  last.add_(static_cast<std::int64_t>(kSeedStep * static_cast<std::uint64_t>(count)));
  return seeds;
}

}  // namespace actzip::torch
