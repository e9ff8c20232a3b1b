// Text to learn from: a file as characters, sentences with labels as words. The numbers are those that
// apps/bench gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "error.hpp"

namespace actzip::data {

/// A text as numbers of its characters, in the order of their code points. The first nine tenths are to train with.
struct Text {
  std::vector<std::uint16_t> tokens;
  std::vector<std::string> vocabulary;  ///< the character of each number, in UTF-8
  std::size_t validation_begin = 0;

  [[nodiscard]] std::span<const std::uint16_t> train() const { return std::span(tokens).first(validation_begin); }
  [[nodiscard]] std::span<const std::uint16_t> validation() const {
    return std::span(tokens).subspan(validation_begin);
  }
};

/// Reads a file in UTF-8. Throws DataError.
Text load_text(const std::string& path);

/// Words that every vocabulary begins with; kFirst begins every sentence.
inline constexpr std::int64_t kPadding = 0;
inline constexpr std::int64_t kUnknown = 1;
inline constexpr std::int64_t kFirst = 2;

struct SentenceSplit {
  std::vector<std::int64_t> ids;  ///< [labels.size(), Sentences::longest], padded
  std::vector<std::int64_t> labels;
  std::vector<std::int64_t> lengths;  ///< with kFirst, without padding
};

struct Sentences {
  SentenceSplit train;
  SentenceSplit validation;
  std::int64_t longest = 0;     ///< words of a row
  std::int64_t vocabulary = 0;  ///< above every id
  std::int64_t classes = 0;
};

struct SentenceOptions {
  std::int64_t longest = 64;     ///< what is longer is cut
  std::int64_t least_count = 2;  ///< words that are rarer in the training file are unknown
};

/// Reads files of GLUE's form: a line "sentence, tab, label" of names, then one of these for each sentence, labels 0 or
/// 1. Throws DataError.
Sentences load_sentences(const std::string& train, const std::string& validation, const SentenceOptions& options = {});

/// The same from a folder with *-train.tsv and *-dev.tsv, or train.tsv and dev.tsv.
Sentences load_sentences(const std::string& folder, const SentenceOptions& options = {});

}  // namespace actzip::data
