#include "data/text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "made_up.hpp"

namespace actzip::data {
namespace {

using test::TemporaryFolder;
using test::thrown_by;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TextTest, characters_are_numbered_by_code_point) {
  const TemporaryFolder folder;
  const Text text = load_text(folder.write("a.txt", "b€aé\nabab😀").string());
  EXPECT_THAT(text.vocabulary, ElementsAre("\n", "a", "b", "é", "€", "😀"));
  EXPECT_THAT(text.tokens, ElementsAre(2, 4, 1, 3, 0, 1, 2, 1, 2, 5));
  EXPECT_EQ(text.train().size(), 9U);
  EXPECT_THAT(text.validation(), ElementsAre(5));
}

TEST(TextTest, refuses_what_is_no_text) {
  const TemporaryFolder folder;
  const auto load = [&](std::string_view content) {
    const std::string path = folder.write("a.txt", content).string();
    return thrown_by<DataError>([&] { (void)load_text(path); });
  };
  EXPECT_THAT(load(""), HasSubstr("empty"));
  for (const std::string_view wrong :
       {"ab\xff", "ab\xc3", "ab\xc0\x80", "ab\xed\xa0\x80", "ab\xf5\x80\x80\x80", "ab\x80"}) {
    EXPECT_THAT(load(wrong), HasSubstr("not a text in UTF-8: byte 2"));
  }
  EXPECT_THAT(thrown_by<DataError>([] { (void)load_text("/no/such.txt"); }), HasSubstr("/no/such.txt: No such file"));
}

TEST(SentencesTest, words_are_numbered_in_order_and_rare_ones_unknown) {
  const TemporaryFolder folder;
  folder.write("x-train.tsv", "sentence\tlabel\nb a  b \t1\na c\xc2\xa0zebra\t0\n");
  folder.write("x-dev.tsv", "sentence\tlabel\na new b b b b\t0\n");
  const Sentences found = load_sentences(folder.string(), {.longest = 5});
  EXPECT_EQ(found.vocabulary, 5);  // padding, unknown, first, a, b
  EXPECT_EQ(found.classes, 2);
  EXPECT_THAT(found.train.ids, ElementsAre(2, 4, 3, 4, 0, 2, 3, 1, 1, 0));
  EXPECT_THAT(found.train.labels, ElementsAre(1, 0));
  EXPECT_THAT(found.train.lengths, ElementsAre(4, 4));
  EXPECT_THAT(found.validation.ids, ElementsAre(2, 3, 1, 4, 4));
  EXPECT_THAT(found.validation.lengths, ElementsAre(5));
}

TEST(SentencesTest, rows_that_would_take_all_memory_are_refused) {
  const TemporaryFolder folder;
  const std::string path = folder.write("x.tsv", "sentence\tlabel\na\t1\nb\t0\nc\t0\nd\t0\n").string();
  for (const std::int64_t longest : {std::int64_t{1}, std::int64_t{65537}, std::int64_t{1} << 62}) {
    EXPECT_THAT(thrown_by<DataError>([&] { (void)load_sentences(path, path, {.longest = longest}); }),
                HasSubstr("sentences of " + std::to_string(longest) + " words (allowed: 2 to 65536)"));
  }
}

TEST(SentencesTest, wrong_lines_are_named) {
  const TemporaryFolder folder;
  const std::string good = folder.write("good.tsv", "sentence\tlabel\na\t1\n").string();
  const auto load = [&](std::string_view content) {
    const std::string path = folder.write("bad.tsv", content).string();
    return thrown_by<DataError>([&] { (void)load_sentences(good, path); });
  };
  EXPECT_THAT(load("text\tlabel\n"), HasSubstr("bad.tsv: begins with 'text\tlabel'"));
  EXPECT_THAT(load("sentence\tlabel\na\t1\nb 1\n"),
              HasSubstr("bad.tsv, line 3: 'b 1' (expected: a sentence, tab, 0 or 1)"));
  EXPECT_THAT(load("sentence\tlabel\n \t1\n"), HasSubstr("line 2"));
  EXPECT_THAT(load("sentence\tlabel\na\t2\n"), HasSubstr("line 2"));
  EXPECT_THAT(load("sentence\tlabel\na\t1"), HasSubstr("truncated"));
  EXPECT_THAT(load("sentence\tlabel\n"), HasSubstr("no sentences"));
}

}  // namespace
}  // namespace actzip::data
