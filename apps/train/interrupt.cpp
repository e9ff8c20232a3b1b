#include "interrupt.hpp"

#include <csignal>

namespace actzip::train {

namespace {

volatile std::sig_atomic_t g_signal = 0;

void note(int signal) { g_signal = signal; }

}  // namespace

void watch_interrupts() {
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int interrupted_by() noexcept { return g_signal; }

}  // namespace actzip::train
