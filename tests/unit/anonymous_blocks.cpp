#include "anonymous_blocks.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <new>
#include <string>
#include <system_error>

#include "actzip/error.hpp"

namespace actzip::store {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20U;

[[noreturn]] void refuse_memory(std::size_t bytes, int error) {
  throw Error(ErrorCode::store_failure,
              fmt::format("store: the system gives no block of {} bytes of memory: {}. Lower the batch size or the "
                          "bits, or raise the limit on the memory of the process",
                          bytes, std::generic_category().message(error)));
}

/// Gives a mapping back with its last owner.
struct Unmap {
  std::size_t bytes;
  void operator()(void* data) const noexcept { munmap(data, bytes); }
};

class AnonymousBlocks final : public BlockSource {
 public:
  Allocation block(std::size_t bytes) override {
    const std::size_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    // One huge page more, so that a multiple of its size lies inside; what is around it goes back at once.
    const std::size_t reserved = size + kHugePage;
    void* const mapped = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) refuse_memory(bytes, errno);
    auto* const start = static_cast<std::byte*>(mapped);
    const std::size_t skipped = (kHugePage - reinterpret_cast<std::uintptr_t>(mapped) % kHugePage) % kHugePage;
    if (skipped > 0) munmap(start, skipped);
    munmap(start + skipped + size, kHugePage - skipped);
    std::byte* const data = start + skipped;
    (void)madvise(data, size, MADV_HUGEPAGE);  // a wish: without huge pages there are more faults, and no less memory
    return {data, size, std::shared_ptr<void>(data, Unmap{size})};
  }
};

}  // namespace

std::shared_ptr<BlockSource> anonymous_blocks() { return std::make_shared<AnonymousBlocks>(); }

}  // namespace actzip::store
