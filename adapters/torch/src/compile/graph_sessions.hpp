// Sessions of compiled graphs: who reports what a graph keeps, and where its seeds come from.
//
// A graph knows the options that it was compiled with, by their text, and describes what it saves, by a text of its
// own. Both survive in torch's caches, from process to process; which session they mean is found when the graph runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actzip/session.hpp"

namespace actzip::torch {

/// Found by texts that nobody copies for it.
struct TextHash : std::hash<std::string_view> {
  using is_transparent = void;
};
template <class Value>
using ByText = std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;

/// One line of a graph's text: what is saved, and what is kept of it.
struct GraphSite {
  std::string module;
  std::string op;
  std::string slot;
  Use use = Use::unknown;
  SiteKind kind = SiteKind::as_is;
  CodecSpec spec = Copy{};
  Cause cause = Cause::none;
  DType dtype = DType::f32;
  Shape shape;              ///< when it was compiled, as are the bytes
  bool is_resized = false;  ///< its sizes come with each run
  std::size_t before = 0;   ///< 0 if torch would not keep it
  std::size_t after = 0;
  std::string reason;
};

/// Fields are separated by tabs, in the order above; the shape of what is resized begins with '~'. Throws
/// Error(invalid_state) for another text.
std::vector<GraphSite> parse_graph_sites(std::string_view text);

/// Counts steps and repetitions for a session whose tensors are kept by graphs.
class GraphSession : public std::enable_shared_from_this<GraphSession> {
 public:
  GraphSession(std::string options, actzip::Session session, std::uint64_t seed)
      : options_(std::move(options)), session_(std::move(session)), seed_(seed) {}

  /// Whoever knows where a step begins says so: the next graph begins it. Else the first graph after a backward does.
  void begin_step();

  /// A graph begins to run, with the text of what it saves: gives a seed for each line, on its device. `sizes` are
  /// those of the lines that are resized, one after another.
  at::Tensor begin_graph(std::string_view text, c10::Device device, c10::IntArrayRef sizes);

  /// The tensor of a line of the graph that runs on this thread was encoded; its shape may be another than before.
  void note_encoded(std::int64_t line, const at::Tensor& tensor, std::size_t bytes);

  /// The bytes of a site were decoded: nobody needs them any more, unless the graph is kept.
  void note_decoded(SiteId site) { session_.note_released(site); }

  /// Memory on a device that is written while CUDA graphs are replayed, made before one is captured.
  void prepare(c10::Device device);

  /// How many have begun, ever.
  [[nodiscard]] std::uint64_t graphs_begun() const { return graphs_begun_; }

  [[nodiscard]] Report report() const { return session_.report(); }
  [[nodiscard]] const std::string& options() const { return options_; }

 private:
  void begin_step_if_due();
  /// What lines of graphs are called, and the sites that this was in one step.
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
  std::mutex mutex_;  ///< of everything below
  bool has_begun_ = false;
  bool is_announced_ = false;  ///< a step, with the next graph
  std::uint64_t backward_seen_ = 0;
  std::vector<Name> names_;
  std::unordered_map<std::string, std::size_t> name_numbers_;
  std::unordered_map<const std::vector<GraphSite>*, std::vector<std::size_t>> names_of_graph_;  ///< by line
  std::unordered_map<int, at::Tensor> counters_;  ///< by device; of the CPU under -1
};

/// The one that serves graphs of these options outside of all calls of a model. Replaces the one before.
void set_default_graph_session(const std::shared_ptr<GraphSession>& session);

/// While it is set, graphs of its options on this thread belong to it. Null: none. Gives the one before.
std::shared_ptr<GraphSession> exchange_current_graph_session(std::shared_ptr<GraphSession> session);

/// encode, decode and begin, in torch's dispatcher under "actzip::". Does nothing the second time.
void register_graph_operators();

}  // namespace actzip::torch
