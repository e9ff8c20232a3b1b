// Turns on torch's autocast for 16-bit products.
#pragma once

#include <ATen/autocast_mode.h>

#include <string>

namespace actzip::train {

/// Turns autocast on for a device during its lifetime, with type "bf16" or "fp16". Does nothing for "none".
class Autocast {
 public:
  Autocast(c10::DeviceType device, const std::string& type) : device_(device), is_on_(type != "none") {
    if (!is_on_) return;
    at::autocast::set_autocast_dtype(device, type == "fp16" ? at::kHalf : at::kBFloat16);
    at::autocast::set_autocast_enabled(device, true);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (!is_on_) return;
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_;
  bool is_on_;
};

}  // namespace actzip::train
