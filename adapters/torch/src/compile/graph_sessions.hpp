// Sessions of compiled graphs: they report what graphs keep, and give out seeds.
//
// A graph contains, as text, the options that it was compiled with and a description of what it saves. Both survive in
// torch's caches, across processes. Which session they belong to is decided when the graph runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actzip/session.hpp"

namespace actzip::torch {

/// Allows lookups by string_view without a copy.
struct TextHash : std::hash<std::string_view> {
  using is_transparent = void;
};
template <class Value>
using ByText = std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;

/// One line of a graph's description: a saved tensor, and what is kept of it.
struct GraphSite {
  std::string module;
  std::string op;
  std::string slot;
  Use use = Use::unknown;
  SiteKind kind = SiteKind::as_is;
  CodecSpec spec = Copy{};
  Cause cause = Cause::none;
  DType dtype = DType::f32;
  Shape shape;              ///< when the graph was compiled, like `before` and `after`
  bool is_resized = false;  ///< its sizes are passed in each run
  std::size_t before = 0;   ///< 0 if torch would not keep it
  std::size_t after = 0;
  std::string reason;
};

/// Parses a graph's description. Fields are in the order above, separated by tabs; the shape of a resized tensor begins
/// with '~'. Throws Error(invalid_state) for any other text.
std::vector<GraphSite> parse_graph_sites(std::string_view text);

/// Counts steps and repetitions of sites for a session whose tensors are kept by graphs. Thread-safe.
class GraphSession : public std::enable_shared_from_this<GraphSession> {
 public:
  GraphSession(std::string options, actzip::Session session, std::uint64_t seed)
      : options_(std::move(options)), session_(std::move(session)), seed_(seed) {}

  /// Announces a step, which begins with the next graph. Without announcements, the first graph after a backward begins
  /// a step.
  void begin_step();

  /// Called when a graph begins to run, with its description. Returns one seed per line, on `device`. `sizes` are those
  /// of the resized lines, one after another.
  at::Tensor begin_graph(std::string_view text, c10::Device device, c10::IntArrayRef sizes);

  /// Called when the tensor of a line was encoded by the graph that runs on this thread. Its shape may differ from that
  /// at compilation. Returns the time, for note_decoded(); nothing if there is no such line.
  std::optional<double> note_encoded(std::int64_t line, const at::Tensor& tensor, std::size_t bytes);

  /// Called when the bytes that a site has kept since `kept_at` were decoded. They are no longer needed, unless the
  /// graph is retained.
  void note_decoded(SiteId site, double kept_at) { session_.note_released(site, kept_at); }

  /// Allocates the memory that replays of CUDA graphs write. Call it before a graph is captured.
  void prepare(c10::Device device);

  /// Number of graphs that have begun since the session was made.
  [[nodiscard]] std::uint64_t graphs_begun() const { return graphs_begun_; }

  [[nodiscard]] Report report() const { return session_.report(); }
  [[nodiscard]] const std::string& options() const { return options_; }

 private:
  void begin_step_if_due();
  /// The sites of all lines with the same name, in the order of a step.
  struct Name {
    int repetitions = 0;  ///< in this step
    std::vector<std::pair<SiteId, Use>> sites = {};
  };
  std::vector<SiteId> next_sites(const std::vector<GraphSite>& lines);
  const std::vector<std::size_t>& names_of(const std::vector<GraphSite>& lines);
  SiteId next_site(Name& name, const GraphSite& line);
  void note(SiteId id, const GraphSite& site, const Shape& shape, std::size_t before, std::size_t after);
  void note_resized(SiteId id, const GraphSite& site, c10::IntArrayRef sizes);
  at::Tensor next_seeds(std::int64_t count, c10::Device device);
  at::Tensor& counter(c10::Device device);

  const std::string options_;
  actzip::Session session_;
  const std::uint64_t seed_;
  std::atomic<std::uint64_t> graphs_begun_ = 0;
  std::mutex mutex_;  ///< guards everything below
  bool has_begun_ = false;
  bool is_announced_ = false;  ///< a step, which the next graph begins
  std::uint64_t backward_seen_ = 0;
  std::vector<Name> names_;
  std::unordered_map<std::string, std::size_t> name_numbers_;
  std::unordered_map<const std::vector<GraphSite>*, std::vector<std::size_t>> names_of_graph_;  ///< by line
  std::unordered_map<int, at::Tensor> counters_;  ///< by device; of the CPU under -1
};

/// Sets the session of graphs with these options while no session is current. Replaces the one before.
void set_default_graph_session(const std::shared_ptr<GraphSession>& session);

/// Sets the session of graphs with its options on this thread. Null: none. Returns the one before.
std::shared_ptr<GraphSession> exchange_current_graph_session(std::shared_ptr<GraphSession> session);

/// Registers actzip::encode, actzip::decode and actzip::begin with torch's dispatcher. Does nothing the second time.
void register_graph_operators();

}  // namespace actzip::torch
