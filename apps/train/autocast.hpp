// Products in 16 bits.
#pragma once

#include <ATen/autocast_mode.h>

#include <string>

namespace actzip::train {

/// While it lives, autocast is on for this device: "bf16" or "fp16"; nothing for "none".
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
