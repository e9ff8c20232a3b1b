// States of checkpoints: parse_run_state() must throw std::runtime_error or return a state whose text parses to the
// same state.
#include <cstdlib>

#include "input_files.hpp"
#include "train/run_state.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace actzip::train;
  Options options;
  options.numbers = {{"--lr", "0.1"}};
  RunState state;
  try {
    state = parse_run_state(std::string(actzip::fuzz::as_text(data, size)), options, "x");
  } catch (const std::runtime_error&) {
    return 0;
  }
  const std::string text = text_of(state, options);
  if (text_of(parse_run_state(text, options, "x"), options) != text) std::abort();
  return 0;
}
