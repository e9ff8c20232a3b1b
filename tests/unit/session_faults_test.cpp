// Memory runs out at each allocation in turn. Nothing may be lost or left behind, and the next step must be the same.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "actzip/codec.hpp"
#include "operators_of_tests.hpp"
#include "session_fixture.hpp"

namespace {

/// The n-th allocation from now on fails, on this thread; 0: none.
thread_local int t_fails_in = 0;

void* allocate(std::size_t size) {
  if (t_fails_in > 0 && --t_fails_in == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t /*size*/) noexcept { std::free(memory); }

namespace actzip {
namespace {

using test::FakeMemory;
using test::FakeTensor;

/// Device memory of which the n-th allocation fails.
class ScarceMemory final : public FakeMemory {
 public:
  Allocation allocate(std::size_t bytes, const Stream& stream) override {
    if (fails_in > 0 && --fails_in == 0) throw std::bad_alloc();
    return FakeMemory::allocate(bytes, stream);
  }
  int fails_in = 0;
};

using Values = std::vector<std::vector<float>>;

/// One step with every way to keep something: a mask, values that share it, indices, booleans, something twice, what an
/// operator encodes itself, and room that nobody uses.
class Step {
 public:
  explicit Step(const SessionOptions& options) : session_(options) { relu_.relu(); }

  Values run(ScarceMemory& memory) {
    session_.begin_step();
    std::vector<Kept> kept;
    const auto keep = [&](const char* op, const char* slot, const SavedTensor& tensor) {
      kept.push_back(session_.keep(session_.site(test::site_key("layer", op, slot)), tensor, Stream(), memory));
    };
    keep("relu", "result", relu_.saved());
    keep("convolution", "input", relu_.saved());
    keep("addmm", "mat1", plain_.saved());
    keep("gelu", "self", plain_.saved());
    SavedTensor indices;
    indices.view = {indices_.data(), DType::i64, Shape::contiguous({static_cast<std::int64_t>(indices_.size())})};
    indices.facts.index_bound = 100;
    keep("embedding", "indices", indices);
    kept.push_back(written("silu", "self", own_, memory));
    (void)session_.reserve(session_.site(test::site_key("layer", "tanh", "result")), own_.saved(), Stream(), memory);
    Values values{restored(kept[0], relu_, memory), restored(kept[1], relu_, memory), restored(kept[2], plain_, memory),
                  restored(kept[3], plain_, memory), restored(kept[5], own_, memory)};
    for (float& x : values[0]) x = x > 0 ? 1.0F : 0.0F;  // a ReLU asks for no more, and may get more
    const Allocation found = restore(kept[4], Stream(), memory);
    EXPECT_EQ(std::memcmp(found.data, indices_.data(), found.size), 0);
    return values;
  }

  [[nodiscard]] std::size_t live_bytes() const { return session_.live_bytes(); }
  [[nodiscard]] std::string report() const { return session_.report().to_json(); }

 private:
  Kept written(const char* op, const char* slot, const FakeTensor& tensor, ScarceMemory& memory) {
    Reservation reserved =
        session_.reserve(session_.site(test::site_key("layer", op, slot)), tensor.saved(), Stream(), memory);
    if (reserved.wants_bytes()) {
      encode(reserved.spec(), tensor.saved().view, reserved.bytes(), reserved.seed(), reserved.stream());
    }
    return session_.keep(std::move(reserved), Written::tensor);
  }
  static std::vector<float> restored(const Kept& kept, const FakeTensor& tensor, ScarceMemory& memory) {
    if (kept.how == Keep::as_is) return tensor.values;
    const Allocation found = restore(kept, Stream(), memory);
    const auto* values = reinterpret_cast<const float*>(found.data);
    return {values, values + found.size / sizeof(float)};
  }

  Session session_;
  FakeTensor relu_;
  FakeTensor plain_{5000, 0.25F};
  FakeTensor own_{4096, 0.5F};
  std::vector<std::int64_t> indices_ = std::vector<std::int64_t>(4096, 7);
};

class Faults : public testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] SessionOptions options() const { return {.preset = GetParam()}; }

  /// Fails in each allocation of the first, second and third step, by set_fault(n).
  template <class SetFault>
  int inject(ScarceMemory& memory, SetFault set_fault) const {
    int injected = 0;
    for (int before = 0; before < 3; ++before) {
      for (int n = 1;; ++n) {
        Step step(options());
        for (int i = 0; i < before; ++i) step.run(memory);
        set_fault(n);
        bool failed = false;
        try {
          step.run(memory);
        } catch (const std::bad_alloc&) {
          failed = true;
        }
        set_fault(0);
        if (!failed) break;
        ++injected;
        EXPECT_EQ(step.live_bytes(), 0U) << "after allocation " << n;
        Step fresh(options());
        if (std::string_view(GetParam()) == "exact") {
          EXPECT_TRUE(step.run(memory) == fresh.run(memory)) << "after allocation " << n;
        }
        EXPECT_EQ(step.live_bytes(), 0U);
        EXPECT_FALSE(step.report().empty());
      }
    }
    return injected;
  }
};

TEST_P(Faults, OfTheDevicesMemoryLeaveNothingBehind) {
  ScarceMemory memory;
  const int injected = inject(memory, [&](int n) { memory.fails_in = n; });
  EXPECT_GT(injected, 8);
  RecordProperty("injected", injected);
}

TEST_P(Faults, OfTheHostsMemoryLeaveNothingBehind) {
  ScarceMemory memory;
  const int injected = inject(memory, [&](int n) { t_fails_in = n; });
  EXPECT_GT(injected, 50);
  RecordProperty("injected", injected);
}

INSTANTIATE_TEST_SUITE_P(Presets, Faults, testing::Values("exact", "default", "affine:4"),
                         [](const auto& preset) { return std::string(preset.param).substr(0, 6); });

}  // namespace
}  // namespace actzip
