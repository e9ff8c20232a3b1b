// What a store in pinned memory does when its device refuses something, is full, or is captured.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "actzip/error.hpp"
#include "pinned_fixture.hpp"
#include "store/store.hpp"

namespace actzip::store {
namespace {

using test::kBlob;
using test::kSmallWindow;

class PinnedFaultsTest : public test::PinnedStoreTest {};

TEST_F(PinnedFaultsTest, MemoryThatCannotBeKeptForItsCopyIsFreedAfterIt) {
  std::vector<Allocation> blobs = slow_forward(20);
  device.copy_microseconds = 3000;
  read(blobs[15], 15);
  EXPECT_GT(store->stats().ahead_bytes, 0U) << "others are on their way";
  device.refused_keeps.set(1);
  blobs.clear();
}

TEST_F(PinnedFaultsTest, MemoryOfACopyThatGivesNoPointIsFreedAfterIt) {
  std::vector<Allocation> blobs = slow_forward(20);
  device.copy_microseconds = 3000;
  device.refused_keeps.set(1);
  device.refused_points.only(4);  // the point at which the first copy has ended
  EXPECT_THROW(read(blobs[10], 10), Error);
  blobs.clear();
}

}  // namespace
}  // namespace actzip::store
