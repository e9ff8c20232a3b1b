// A layer reserves room and writes the bytes itself, as fused layers do on a GPU. Here it uses the CPU's codecs.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <utility>

#include "actzip/codec.hpp"
#include "actzip/error.hpp"
#include "layers/fused_activation.hpp"
#include "layers/fused_batch_norm.hpp"
#include "session/session_impl.hpp"

namespace actzip::torch {
namespace {

const OperatorInfo kGelu{"gelu", {"self"}};
const OperatorInfo kRelu{"relu", {}};
constexpr SlotCode kInput{0};

Packed pack(SessionImpl& session, const at::Tensor& tensor, const OperatorInfo& op, SlotCode slot) {
  return session.pack(tensor, {&op, slot, nullptr, {}}, session.module_path("layer"));
}

ReservedPack reserve(SessionImpl& session, const at::Tensor& tensor, const OperatorInfo& op, SlotCode slot) {
  return session.reserve(tensor, {&op, slot, nullptr, {}}, session.module_path("layer"));
}

void write(const Reservation& room) {
  encode(room.spec(), room.tensor().view, room.bytes(), room.seed(), room.stream());
}

TEST(ReservedPack, IsWhatPackWouldHaveMade) {
  const at::Tensor x = at::randn({64, 256}).t();
  for (const Written written : {Written::tensor, Written::nothing}) {
    SessionImpl plain(SessionOptions{});
    SessionImpl session(SessionOptions{});
    const Packed expected = pack(plain, x, kGelu, kInput);
    ReservedPack reserved = reserve(session, x, kGelu, kInput);
    ASSERT_TRUE(reserved.room.wants_bytes());
    if (written == Written::tensor) write(reserved.room);
    const Packed packed = session.pack(std::move(reserved), written);
    EXPECT_TRUE(at::equal(packed.unpack(), expected.unpack()));
    EXPECT_EQ(packed.unpack().strides(), x.strides());
    EXPECT_EQ(packed.site(), expected.site());
    EXPECT_EQ(session.core().live_bytes(), plain.core().live_bytes());
    EXPECT_EQ(session.core().report().sites.at(0).codec, plain.core().report().sites.at(0).codec);
  }
}

TEST(ReservedPack, OfASmallTensorIsTheTensor) {
  SessionImpl session(SessionOptions{});
  const at::Tensor x = at::randn({16});
  ReservedPack reserved = reserve(session, x, kGelu, kInput);
  EXPECT_FALSE(reserved.room.wants_bytes());
  EXPECT_FALSE(layers::activate_into(reserved.room, Activation::gelu, x).defined());
  EXPECT_TRUE(session.pack(std::move(reserved), Written::nothing).unpack().is_alias_of(x));
}

TEST(ReservedPack, CountsForNothingWithoutPack) {
  SessionImpl session(SessionOptions{});
  const at::Tensor x = at::randn({64, 256});
  {
    const ReservedPack reserved = reserve(session, x, kGelu, kInput);
    EXPECT_GT(session.core().live_bytes(), 0U);
    EXPECT_FALSE(layers::activate_into(reserved.room, Activation::gelu, x).defined()) << "no kernel on the CPU";
    EXPECT_FALSE(layers::normalize_into(reserved.room, x, {}, {}, 1e-5, /*with_signs=*/true)) << "no kernel either";
  }
  EXPECT_EQ(session.core().live_bytes(), 0U);
  EXPECT_TRUE(session.core().report().sites.empty());
  EXPECT_EQ(session.core().saves(), 0);
}

TEST(ReservedPack, SignsThatAreKnownAreTheMask) {
  SessionImpl session(SessionOptions{});
  const at::Tensor y = at::relu(at::randn({64, 256}));
  const at::Tensor signs = at::empty({y.numel() / 8}, at::kByte);
  encode(Mask{}, {y.const_data_ptr(), DType::f32, Shape::contiguous({y.numel()})},
         {static_cast<std::byte*>(signs.mutable_data_ptr()), signs.nbytes()}, Seed(0), Stream());
  ReservedPack reserved = reserve(session, y, kRelu, {SlotCode::kResult});
  EXPECT_FALSE(layers::copy_signs_into(reserved.room, {}));
  EXPECT_FALSE(layers::copy_signs_into(reserved.room, signs.slice(0, 0, 8))) << "of another size";
  ASSERT_TRUE(layers::copy_signs_into(reserved.room, signs));
  const Packed packed = session.pack(std::move(reserved), Written::tensor);
  EXPECT_TRUE(at::equal(packed.unpack() > 0, y > 0));
}

}  // namespace
}  // namespace actzip::torch
