// Texts and sentences: load_text() and load_sentences() must throw DataError or number what they read.
#include <algorithm>
#include <cstdlib>

#include "data/text.hpp"
#include "input_files.hpp"

namespace {

using namespace actzip;

void check_text(const std::string& path) {
  try {
    const data::Text text = data::load_text(path);
    if (std::ranges::max(text.tokens) + 1U != text.vocabulary.size()) std::abort();
  } catch (const data::DataError&) {
    return;
  }
}

void check_split(const data::SentenceSplit& split, const data::Sentences& all) {
  const auto longest = static_cast<std::size_t>(all.longest);
  const bool fits = split.ids.size() == split.labels.size() * longest && split.lengths.size() == split.labels.size() &&
                    std::ranges::all_of(split.ids, [&](std::int64_t id) { return id >= 0 && id < all.vocabulary; });
  if (!fits) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::InputFiles files;
  const auto parts = fuzz::parts_of(fuzz::as_text(data, size), 2);
  const std::string train = files.write("train.tsv", parts[0]).string();
  const std::string validation = files.write("dev.tsv", parts[1]).string();
  check_text(train);
  try {
    const data::Sentences sentences = data::load_sentences(train, validation, {.longest = 8});
    check_split(sentences.train, sentences);
    check_split(sentences.validation, sentences);
  } catch (const data::DataError&) {
    return 0;
  }
  return 0;
}
