// Which operator runs on this thread, and with what arguments: a stack that a thread-local callback of torch's
// RecordFunction maintains.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actzip/policy.hpp"
#include "observe/gradient_comparison.hpp"
#include "observe/noise_stream.hpp"
#include "operators/call.hpp"
#include "operators/operator_info.hpp"

namespace actzip::torch {

class AttentionCall;
class RecurrentCall;
class MemoryLog;
class ParameterRegistry;

/// The saves of a function that can be identified only when it has saved everything.
class LateSaves {
 public:
  virtual ~LateSaves() = default;
  /// Called when the function ends.
  virtual void settle() = 0;
};

/// One running operator.
struct Frame : Call {
  const OperatorInfo* info = nullptr;
  int other_saves = 0;  ///< saves so far that are neither an argument nor a differentiable output
  bool has_saved = false;
  std::shared_ptr<AttentionCall> attention;  ///< set if it is an attention that can run again
  std::shared_ptr<RecurrentCall> recurrent;  ///< set if it is a recurrent layer that can run again
  std::vector<TriedSave> tried;              ///< saves so far that `stream` observes; mostly empty
  std::shared_ptr<NoiseStream> stream;
  Witnesses witnesses;              ///< of its saves so far; mostly empty
  std::unique_ptr<LateSaves> late;  ///< mostly null
};

/// An operator that saves a tensor, and the slot.
struct Saver {
  const OperatorInfo* op = nullptr;
  SlotCode slot;
  const void* parameter = nullptr;  ///< see Call
  OperatorFacts facts;
  Frame* frame = nullptr;  ///< while it runs; null outside of all operators, and for layers
  bool is_first = false;   ///< this is its first save
};

/// The base class of sessions, which follow the running operators.
class Listener {
 public:
  virtual ~Listener() = default;

  /// Returns whether modules must be watched in this step.
  virtual bool begin_step() = 0;
  /// Opens the last step once more, for operators that run again in its backward. Returns whether modules must be
  /// watched.
  virtual bool resume_step() = 0;
  virtual void end_step() = 0;
  /// Whether it needs the autograd nodes of operators in the step that has begun.
  virtual bool follows_nodes() = 0;
};

/// `session` listens to this thread's operators between these two calls, which nest. Its outermost call begins a step,
/// and the matching one ends it. Returns whether modules must be watched in that step. If it throws, nothing has begun.
bool start_listening(const std::shared_ptr<Listener>& session);
/// The same, but the outermost call resumes the last step in place of beginning one.
bool resume_listening(const std::shared_ptr<Listener>& session);
/// Throws Error(invalid_scope) if `session` does not listen on this thread.
void stop_listening(const Listener& session);

/// While it lives, this thread runs operators again in backward. Their own nodes never run.
class ModuleRunsAgain {
 public:
  ModuleRunsAgain() noexcept;
  ModuleRunsAgain(const ModuleRunsAgain&) = delete;
  ModuleRunsAgain& operator=(const ModuleRunsAgain&) = delete;
  ~ModuleRunsAgain();
};
bool module_runs_again();

/// Whether `session` listens on this thread: one of its scopes is open.
bool is_listening(const Listener& session);

/// Returns the log of what this thread's operators did to memory; null if no session listens.
MemoryLog* memory_log();

/// Returns a number that changes when the memory of `tensor` is written to, as far as its version counter and the log
/// show.
std::uint64_t memory_version(const at::Tensor& tensor);

/// While it lives, no session hears of this thread's operators. It has no effect if something else also listens, such
/// as a profiler.
class Unheard {
 public:
  Unheard();

 private:
  std::optional<at::RecordFunctionGuard> guard_;
};

/// Returns an argument of the operator; undefined if it is no tensor. Call it only while the operator runs.
at::Tensor tensor_at(const Frame& frame, int position);

/// Returns which operator saves `tensor` on this thread now.
Saver current_saver(const at::Tensor& tensor, const ParameterRegistry& parameters);

/// Says that the operator that runs on this thread has saved a tensor that `stream` observes in backward.
void note_tried(const TriedSave& save, const std::shared_ptr<NoiseStream>& stream);

/// Says that what is saved on this thread now has a witness. The guard gets its node when that is known.
void note_witness(const std::shared_ptr<Witness>& witness);

std::string slot_name(const OperatorInfo& op, SlotCode slot);

/// Returns the path of the module of `session` whose forward runs on this thread; null if none is known. The session
/// owns paths, and they are compared by address.
const std::string* current_module(const Listener& session);
/// Does nothing unless `session` listens on this thread.
void enter_module(const Listener& session, const std::string* path);
/// Leaves `path`, and all modules that were entered after it and not left.
void leave_module(const Listener& session, const std::string* path);

}  // namespace actzip::torch
