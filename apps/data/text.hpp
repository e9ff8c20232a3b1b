// Loads texts as characters and labelled sentences as words, with the same numbers as the Python loaders of apps/bench.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "error.hpp"

namespace actzip::data {

/// A text as character numbers, assigned in order of the code points. The first nine tenths are for training.
struct Text {
  std::vector<std::uint16_t> tokens;
  std::vector<std::string> vocabulary;  ///< each number's character, in UTF-8
  std::size_t validation_begin = 0;

  [[nodiscard]] std::span<const std::uint16_t> train() const { return std::span(tokens).first(validation_begin); }
  [[nodiscard]] std::span<const std::uint16_t> validation() const {
    return std::span(tokens).subspan(validation_begin);
  }
};

/// Reads a file in UTF-8. Throws DataError.
Text load_text(const std::string& path);

/// The special words at the start of every vocabulary. Every sentence begins with kFirst.
inline constexpr std::int64_t kPadding = 0;
inline constexpr std::int64_t kUnknown = 1;
inline constexpr std::int64_t kFirst = 2;

struct SentenceSplit {
  std::vector<std::int64_t> ids;  ///< [labels.size(), Sentences::longest], padded
  std::vector<std::int64_t> labels;
  std::vector<std::int64_t> lengths;  ///< including kFirst, excluding padding
};

struct Sentences {
  SentenceSplit train;
  SentenceSplit validation;
  std::int64_t longest = 0;     ///< words per row
  std::int64_t vocabulary = 0;  ///< greater than every id
  std::int64_t classes = 0;
};

struct SentenceOptions {
  std::int64_t longest = 64;     ///< longer sentences are cut
  std::int64_t least_count = 2;  ///< words with fewer occurrences in the training file become kUnknown
};

/// Reads files in GLUE's format: a header line "sentence, tab, label", then such a line for each sentence, with label 0
/// or 1. Throws DataError.
Sentences load_sentences(const std::string& train, const std::string& validation, const SentenceOptions& options = {});

/// Reads the files of a folder whose names end in train.tsv and dev.tsv. Throws DataError.
Sentences load_sentences(const std::string& folder, const SentenceOptions& options = {});

}  // namespace actzip::data
