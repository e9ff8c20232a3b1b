// Host memory for sessions in tests.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "actzip/memory.hpp"

namespace actzip::test {

class PlainMemory : public Memory {
 public:
  Allocation allocate(std::size_t bytes, const Stream& /*stream*/) override {
    auto blocks = std::make_shared<std::vector<Block>>((bytes + sizeof(Block) - 1) / sizeof(Block));
    return {blocks->data()->bytes, bytes, std::shared_ptr<void>(blocks, blocks.get())};
  }
  Allocation allocate_visible(std::size_t bytes, const Stream& stream) override { return allocate(bytes, stream); }
  void hand_over(const Allocation& /*bytes*/, const Stream& /*writer*/, const Stream& /*reader*/) override {}
  std::shared_ptr<void> point_in(const Stream& /*stream*/) override { return nullptr; }
  void wait_for(const std::shared_ptr<void>& /*point*/) override {}

 private:
  struct alignas(16) Block {
    std::byte bytes[16];
  };
};

}  // namespace actzip::test
