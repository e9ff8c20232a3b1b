// Which pickles are read and which are refused, given as bytes. Does not use torch.
#include "models/pickle.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace actzip::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::string_view kProtocol = "\x80\x02";

std::string text(std::string_view value) {
  return std::string({'X', static_cast<char>(value.size()), 0, 0, 0}).append(value);
}

std::string number(std::int64_t value) {
  std::string bytes = "\x8a\x08";
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

std::string tuple(const std::vector<std::int64_t>& values) {
  std::string bytes = "(";
  for (const std::int64_t value : values) bytes += number(value);
  return bytes + "t";
}

/// A view of record 0.
struct View {
  std::int64_t offset;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
};

std::string tensor(const View& view) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\nFloatStorage\n" + text("0") +
         text("cpu") + number(0) + "tQ" + number(view.offset) + tuple(view.sizes) + tuple(view.strides) + "\x89}tR";
}

std::string dict(const std::string& items) { return std::string(kProtocol) + "}(" + items + "u."; }

constexpr std::size_t kElems = 24;

PickledTensors read(std::string_view pickle) {
  return unpickle_tensors(pickle, [](const std::string& /*record*/) { return 4 * kElems; });
}

std::string pickle_error(std::string_view pickle) {
  try {
    (void)read(pickle);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Pickle, IsReadAsADictOfTensors) {
  const PickledTensors tensors = read(dict(text("a") + tensor({4, {2, 5}, {5, 1}}) + text("b") + tensor({0, {}, {}}) +
                                           text("a") + tensor({23, {1}, {7}})));
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].first, "a");  // the later value of a key, at the key's first position
  EXPECT_EQ(tensors[0].second.offset, 23);
  EXPECT_THAT(tensors[0].second.sizes, ElementsAre(1));
  EXPECT_EQ(tensors[0].second.record, "0");
  EXPECT_EQ(tensors[1].first, "b");
  EXPECT_THAT(tensors[1].second.sizes, IsEmpty());
  EXPECT_EQ(tensors[1].second.type, ElementType::f32);
  EXPECT_THAT(read(dict("")), IsEmpty());
}

TEST(Pickle, HasTensorsThatLieInTheirStorage) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::vector<View> inside = {{0, {24}, {1}},      {23, {1}, {99}}, {0, {1000000}, {0}},
                                    {0, {4, 6}, {1, 4}}, {24, {0}, {1}},  {0, {5, 0}, {1000, 1}}};
  for (const View& view : inside) EXPECT_EQ(pickle_error(dict(text("a") + tensor(view))), "no error");
  const std::vector<View> outside = {{0, {25}, {1}},
                                     {1, {24}, {1}},
                                     {24, {}, {}},
                                     {25, {0}, {1}},
                                     {-1, {1}, {1}},
                                     {0, {2}, {-1}},
                                     {0, {-1}, {1}},
                                     {0, {2, 2}, {1}},
                                     {kMost, {1}, {1}},
                                     {0, {kMost}, {1}},
                                     {0, {2}, {kMost}},
                                     {0, {kMost, 3}, {0, 0}},
                                     {0, {3, 3}, {kMost / 2, kMost / 2}}};
  for (const View& view : outside) {
    EXPECT_THAT(pickle_error(dict(text("a") + tensor(view))), HasSubstr("outside of its storage"));
  }
}

TEST(Pickle, OfAnyDepthIsRefusedAndNothingWorse) {
  constexpr std::size_t kDepth = 1'000'000;
  const std::string lists = std::string(kProtocol) + std::string(kDepth, ']') + std::string(kDepth - 1, 'a') + ".";
  EXPECT_EQ(pickle_error(lists), "holds a List (allowed: a dict of tensors)");
  std::string tuples = std::string(kProtocol) + ")";
  for (std::size_t i = 0; i < kDepth; ++i) tuples += '\x85';
  EXPECT_EQ(pickle_error(tuples + "."), "holds a Tuple (allowed: a dict of tensors)");
  EXPECT_EQ(pickle_error(std::string(kProtocol) + "}" + tuples.substr(2) + "Ns."),
            "holds a dict of Tuple to None (allowed: of names to tensors)");
}

TEST(Pickle, OfAListThatHoldsItselfIsRefused) {
  const std::string pickle = {'\x80', '\x02', ']', 'q', 0, 'h', 0, 'a', '.'};
  EXPECT_EQ(pickle_error(pickle), "holds a List (allowed: a dict of tensors)");
}

TEST(Pickle, SaysWhatIsWrong) {
  EXPECT_EQ(pickle_error(""), "a truncated pickle");
  EXPECT_EQ(pickle_error("X\xff\xff\xff\xff"), "a truncated pickle");
  EXPECT_EQ(pickle_error("."), "an unbalanced pickle");
  EXPECT_EQ(pickle_error("t"), "an unbalanced pickle");
  EXPECT_EQ(pickle_error("q\x01"), "an unbalanced pickle");
  EXPECT_EQ(pickle_error("h\x07"), "value 7, which was not kept");
  EXPECT_EQ(pickle_error("}Na"), "a Dict where a List belongs");
  EXPECT_EQ(pickle_error("}(Nu"), "a key without a value");
  EXPECT_EQ(pickle_error("cos\nsystem\n)R"), "an object of 'os system'");
  EXPECT_EQ(pickle_error("\x8a\x09"
                         "123456789"),
            "an integer of 9 bytes");
  EXPECT_EQ(pickle_error("?"), "pickle instruction 0x3f");
}

}  // namespace
}  // namespace actzip::models
