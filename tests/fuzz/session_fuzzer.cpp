// States of sessions: load_state() must throw Error(invalid_state), or the session must continue and write a state that
// loads again.
#include <cstdlib>
#include <optional>

#include "actzip/actzip.hpp"
#include "actzip/session.hpp"
#include "input_files.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace actzip;
  SessionOptions options;
  options.bits = 1.5;
  Session session(options);
  try {
    session.load_state(fuzz::as_text(data, size));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_state) std::abort();
    if (session.report().steps != 0) std::abort();  // nothing was taken over
    return 0;
  }
  const std::string saved = session.save_state();
  Session other(options);
  other.load_state(saved);
  if (other.save_state() != saved) std::abort();
  session.begin_step();
  (void)session.report().to_json();
  return 0;
}
