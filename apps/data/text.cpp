#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>

#include "file.hpp"

namespace actzip::data {
namespace {

/// Whether a character separates words: Unicode white space as in Python's split().
bool is_space(char32_t code) {
  return code == ' ' || (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x1f) || code == 0x85 ||
         code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

std::vector<std::string_view> words_of(std::string_view sentence) {
  std::vector<std::string_view> words;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < sentence.size();) {
    const Character character = next_character(sentence.substr(at));
    if (is_space(character.code)) {
      if (at > begin) words.push_back(sentence.substr(begin, at - begin));
      begin = at + character.length;
    }
    at += character.length;
  }
  if (sentence.size() > begin) words.push_back(sentence.substr(begin));
  return words;
}

/// A file in memory with the words of each of its sentences.
struct SentenceFile {
  explicit SentenceFile(const std::string& path) : text(read_text(path)) {
    const std::vector<std::string_view> lines = lines_of(path, text);
    if (lines.front() != "sentence\tlabel") {
      throw DataError(
          fmt::format("{}: begins with '{}' (expected: 'sentence', tab, 'label')", path, lines.front().substr(0, 60)));
    }
    for (std::size_t i = 1; i < lines.size(); ++i) {
      const std::string_view line = lines[i];
      const std::size_t tab = line.rfind('\t');
      const std::string_view label = tab == std::string_view::npos ? "" : line.substr(tab + 1);
      if (tab != std::string_view::npos) sentences.push_back(words_of(line.substr(0, tab)));
      if ((label != "0" && label != "1") || sentences.back().empty()) {
        throw DataError(
            fmt::format("{}, line {}: '{}' (expected: a sentence, tab, 0 or 1)", path, i + 1, line.substr(0, 60)));
      }
      labels.push_back(label == "1" ? 1 : 0);
    }
    if (sentences.empty()) throw DataError(fmt::format("{}: no sentences", path));
  }
  SentenceFile(const SentenceFile&) = delete;  // the words are views into its text
  SentenceFile& operator=(const SentenceFile&) = delete;

  std::string text;
  std::vector<std::vector<std::string_view>> sentences;
  std::vector<std::int64_t> labels;
};

using Numbers = std::unordered_map<std::string_view, std::int64_t>;

/// Numbers the words in byte order, which is also the order of their code points.
Numbers number_words(const SentenceFile& file, std::int64_t least_count) {
  std::map<std::string_view, std::int64_t> counts;
  for (const auto& sentence : file.sentences) {
    for (const std::string_view word : sentence) ++counts[word];
  }
  Numbers numbers;
  std::int64_t next = kFirst + 1;
  for (const auto& [word, count] : counts) {
    if (count >= least_count) numbers.emplace(word, next++);
  }
  return numbers;
}

SentenceSplit numbered(SentenceFile& file, const Numbers& numbers, std::int64_t longest) {
  SentenceSplit split;
  const auto row_length = static_cast<std::size_t>(longest);
  split.ids.assign(file.sentences.size() * row_length, kPadding);
  split.labels = std::move(file.labels);
  for (std::size_t row = 0; row < file.sentences.size(); ++row) {
    const auto& words = file.sentences[row];
    const std::size_t length = std::min(words.size() + 1, row_length);
    std::int64_t* ids = split.ids.data() + row * row_length;
    ids[0] = kFirst;
    for (std::size_t i = 1; i < length; ++i) {
      const auto known = numbers.find(words[i - 1]);
      ids[i] = known == numbers.end() ? kUnknown : known->second;
    }
    split.lengths.push_back(static_cast<std::int64_t>(length));
  }
  return split;
}

}  // namespace

Text load_text(const std::string& path) {
  const std::string content = read_text(path);
  std::vector<char32_t> codes;
  std::map<char32_t, std::string> characters;
  for (std::size_t at = 0; at < content.size();) {
    const Character character = next_character(std::string_view(content).substr(at));
    codes.push_back(character.code);
    if (!characters.contains(character.code)) characters[character.code] = content.substr(at, character.length);
    at += character.length;
  }
  constexpr std::size_t kMost = std::size_t{std::numeric_limits<std::uint16_t>::max()} + 1;
  if (characters.size() > kMost) {
    throw DataError(fmt::format("{}: {} different characters (allowed: {})", path, characters.size(), kMost));
  }
  Text text;
  std::unordered_map<char32_t, std::uint16_t> numbers;
  for (const auto& [code, written] : characters) {
    numbers[code] = static_cast<std::uint16_t>(text.vocabulary.size());
    text.vocabulary.push_back(written);
  }
  text.tokens.reserve(codes.size());
  for (const char32_t code : codes) text.tokens.push_back(numbers[code]);
  text.validation_begin = text.tokens.size() * 9 / 10;
  return text;
}

Sentences load_sentences(const std::string& train, const std::string& validation, const SentenceOptions& options) {
  constexpr std::int64_t kMost = std::int64_t{1} << 16;  // every row has this many numbers, however short its sentence
  if (options.longest < 2 || options.longest > kMost) {
    throw DataError(fmt::format("sentences of {} words (allowed: 2 to {})", options.longest, kMost));
  }
  SentenceFile train_file(train);
  SentenceFile validation_file(validation);
  const Numbers numbers = number_words(train_file, options.least_count);
  Sentences sentences;
  sentences.longest = options.longest;
  sentences.vocabulary = kFirst + 1 + static_cast<std::int64_t>(numbers.size());
  sentences.classes = 2;
  sentences.train = numbered(train_file, numbers, options.longest);
  sentences.validation = numbered(validation_file, numbers, options.longest);
  return sentences;
}

Sentences load_sentences(const std::string& folder, const SentenceOptions& options) {
  const auto find = [&](std::string_view ending) {
    const std::filesystem::path file = find_by_ending(folder, ending);
    if (file.empty()) throw DataError(fmt::format("{}: no file whose name ends in {}", folder, ending));
    return file.string();
  };
  return load_sentences(find("train.tsv"), find("dev.tsv"), options);
}

}  // namespace actzip::data
