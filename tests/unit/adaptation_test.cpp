#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actzip/error.hpp"
#include "actzip/registry.hpp"
#include "actzip/session.hpp"
#include "expect_error.hpp"
#include "operators_of_tests.hpp"
#include "plain_memory.hpp"

namespace actzip {
namespace {

constexpr std::int64_t kElems = 4096;

/// Two linear operands, and a ReLU whose result a third one reads.
class AdaptationTest : public testing::Test {
 protected:
  void restart(const SessionOptions& options) { session.emplace(options); }

  void step() {
    session->begin_step();
    kept.clear();
    keep("a", "mm", "self", first_);
    keep("b", "mm", "self", second_);
    keep("c", "relu", "result", third_);
    keep("d", "mm", "self", third_);
  }

  void learn(double a, double b, double d) {
    session->learn({.sites = {{id("a", "mm", "self"), a}, {id("b", "mm", "self"), b}, {id("d", "mm", "self"), d}}});
  }

  SiteId id(const char* module, const char* op, const char* slot) {
    return session->site(test::site_key(module, op, slot));
  }

  [[nodiscard]] std::vector<std::string> codecs() const {
    std::vector<std::string> result;
    for (const SiteReport& site : session->report().sites) result.push_back(site.codec);
    return result;
  }

  std::vector<float> restored(std::size_t i) {
    const Allocation values = restore(kept[i], Stream(), memory_);
    std::vector<float> result(values.size / sizeof(float));
    std::memcpy(result.data(), values.data, values.size);
    return result;
  }

  std::optional<Session> session;
  std::vector<Kept> kept;

 private:
  struct Values {
    Values() : values(kElems) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = std::max(0.0F, std::sin(0.37F * static_cast<float>(i)));
      }
    }
    std::vector<float> values;
    std::shared_ptr<int> guard = std::make_shared<int>();
  };

  void keep(const char* module, const char* op, const char* slot, const Values& values) {
    SavedTensor tensor;
    tensor.view = {values.values.data(), DType::f32, Shape::contiguous({kElems})};
    tensor.identity = {reinterpret_cast<std::uintptr_t>(values.guard.get()), values.guard};
    kept.push_back(session->keep(id(module, op, slot), tensor, Stream(), memory_));
  }

  test::PlainMemory memory_;
  Values first_;
  Values second_;
  Values third_;
};

using Codecs = std::vector<std::string>;

TEST_F(AdaptationTest, bits_go_where_they_matter_within_the_average) {
  restart({.bits = 2, .adapt = "layer"});
  step();
  step();
  EXPECT_EQ(codecs(), (Codecs{"rotated:3", "rotated:3", "rotated:3:mask", "shared"})) << "the table, as yet";
  learn(100.0, 1.0, 1.0);
  step();
  EXPECT_EQ(codecs(), (Codecs{"rotated:4", "rotated:1", "rotated:1:mask", "shared"}));
  const Report report = session->report();
  ASSERT_TRUE(report.plan);
  EXPECT_EQ(report.plan->average_bits, 2.0);
  const double predicted =
      100.0 * expected_error(Rotated{.bits = Bits(4)}) + 2.0 * expected_error(Rotated{.bits = Bits(1)});
  EXPECT_NEAR(*report.plan->predicted_variance, predicted, 1e-9);
  EXPECT_EQ(report.sites[2].sensitivity, 1.0) << "of what the layer reads, at the site that keeps it";
  EXPECT_FALSE(report.sites[3].sensitivity);
}

TEST_F(AdaptationTest, until_a_plan_the_table_is_asked_for_the_budget) {
  restart({.bits = 4, .adapt = "layer"});
  step();
  EXPECT_EQ(codecs(), (Codecs{"rotated:4", "rotated:4", "mask", "rotated:4:mask"}));
  restart({.bits = 5, .adapt = "layer"});
  step();
  EXPECT_EQ(codecs()[0], "affine:8:dithered");
}

TEST_F(AdaptationTest, a_plan_gives_no_site_more_than_the_most) {
  restart({.bits = 2, .adapt = "layer", .max_bits = 3});
  step();
  step();
  learn(100.0, 1.0, 1.0);
  step();
  EXPECT_EQ(codecs(), (Codecs{"rotated:3", "rotated:2", "rotated:1:mask", "shared"}));
}

TEST_F(AdaptationTest, a_plan_takes_the_codec_that_was_asked_for) {
  restart({.bits = 2, .adapt = "layer", .codec = "affine:dithered"});
  step();
  step();
  learn(100.0, 1.0, 1.0);
  step();
  const Codecs found = codecs();
  EXPECT_EQ(found[0], "affine:4:dithered");
  EXPECT_EQ(found[1], "affine:1:dithered");
}

TEST_F(AdaptationTest, bits_change_again_when_sensitivities_do) {
  restart({.bits = 2, .adapt = "layer"});
  step();
  step();
  learn(1.0, 1.0, 100.0);
  step();
  EXPECT_EQ(codecs(), (Codecs{"rotated:1", "rotated:1", "rotated:4:mask", "shared"}));
  for (int i = 0; i < 20; ++i) learn(1.0, 100.0, 1.0);
  step();
  EXPECT_EQ(codecs(), (Codecs{"rotated:1", "rotated:4", "rotated:1:mask", "shared"}));
  for (int i = 0; i < 20; ++i) learn(1.0, 1e-9, 1e9);
  step();
  EXPECT_EQ(codecs()[2], "rotated:4:mask");
}

TEST_F(AdaptationTest, a_fraction_is_an_average) {
  restart({.bits = 1.34});
  step();
  step();
  learn(1.0, 9.0, 1.0);
  step();
  EXPECT_EQ(codecs(), (Codecs{"rotated:1", "rotated:2", "rotated:1:mask", "shared"}));
}

TEST_F(AdaptationTest, what_the_user_ruled_stays_ruled) {
  restart({.bits = 2, .rules = {{"a: mm.self", "rotated:3"}}, .adapt = "layer"});
  step();
  step();
  learn(1e6, 2.0, 1.0);
  step();
  EXPECT_EQ(codecs()[0], "rotated:3");
  EXPECT_FALSE(kept[0].trial);
  EXPECT_TRUE(kept[1].trial);
}

TEST_F(AdaptationTest, where_an_error_does_more_than_its_square_one_bit_is_not_offered) {
  restart({.bits = 1, .adapt = "layer"});
  const auto site = id("q", "attention", "query");
  const std::vector<float> values(kElems, 1.0F);
  SavedTensor tensor;
  tensor.view = {values.data(), DType::f32, Shape::contiguous({kElems})};
  test::PlainMemory memory;
  for (int i = 0; i < 3; ++i) {
    session->begin_step();
    session->keep(site, tensor, Stream(), memory);
    if (i == 1) session->learn({.sites = {{site, 1.0}}});
  }
  EXPECT_EQ(codecs(), (Codecs{"rotated:2"}));
}

TEST_F(AdaptationTest, steps_are_observed_early_and_then_at_the_interval) {
  restart({.adapt = "layer", .interval = 50});
  std::vector<int> observed;
  for (int i = 1; i <= 100; ++i) {
    step();
    if (!session->wants_observation()) continue;
    observed.push_back(i);
    learn(1.0, 1.0, 1.0);
  }
  EXPECT_EQ(observed, (std::vector<int>{2, 4, 8, 16, 32, 50, 100}));
  restart({});
  step();
  step();
  EXPECT_FALSE(session->wants_observation());
}

TEST_F(AdaptationTest, figures_that_are_none_are_refused) {
  restart({.adapt = "layer"});
  step();
  step();
  EXPECT_FALSE(session->learn({.sites = {{id("a", "mm", "self"), std::numeric_limits<double>::quiet_NaN()}}}));
  EXPECT_EQ(session->report().plan->plans, 0);
  EXPECT_TRUE(session->wants_observation()) << "the next step may be better";
}

TEST_F(AdaptationTest, a_trial_repeats_all_noise_but_that_of_its_sites) {
  restart({.adapt = "measured"});
  step();
  step();
  session->set_trial(Trial{.seed = 1});
  step();
  const auto a = restored(0);
  const auto b = restored(1);
  step();
  EXPECT_EQ(restored(0), a);
  session->set_trial(Trial{.seed = 1, .sites = {id("a", "mm", "self"), id("c", "relu", "result")}});
  step();
  EXPECT_NE(restored(0), a);
  EXPECT_EQ(restored(1), b);
  EXPECT_EQ(codecs()[2], "rotated:2:mask");
  session->set_trial(Trial{.seed = 2});
  step();
  EXPECT_NE(restored(1), b);
  session->set_trial(std::nullopt);
  step();
  EXPECT_NE(restored(1), b);
}

TEST_F(AdaptationTest, a_trial_has_its_own_bits_whatever_was_planned) {
  restart({.bits = 2, .adapt = "measured"});
  step();
  step();
  learn(100.0, 1.0, 1.0);
  session->set_trial(Trial{.seed = 1, .sites = {id("a", "mm", "self"), id("c", "relu", "result")}});
  step();
  EXPECT_EQ(codecs(), (Codecs{"rotated:2", "rotated:1", "rotated:2:mask", "shared"}));
  session->set_trial(std::nullopt);
  step();
  EXPECT_EQ(codecs(), (Codecs{"rotated:4", "rotated:1", "rotated:1:mask", "shared"}));
}

TEST_F(AdaptationTest, much_variance_is_told) {
  restart({.adapt = "layer"});
  step();
  step();
  const auto observed = [&](double own) {
    Observation observation{.sites = {{id("a", "mm", "self"), 1.0}}};
    observation.gradient_variance = own;
    session->learn(observation);
  };
  observed(1000.0);
  EXPECT_FALSE(session->adds_much());
  observed(0.1);
  EXPECT_TRUE(session->adds_much());
  EXPECT_NE(session->report().to_text().find("more than 10 %"), std::string::npos);
  session->set_measured_variance(0.001);
  EXPECT_FALSE(session->adds_much()) << "what was measured says more than what was predicted";
}

TEST_F(AdaptationTest, a_loaded_state_goes_on_bit_for_bit) {
  for (const SessionOptions& options : {SessionOptions{.seed = 5}, SessionOptions{.bits = 2, .adapt = "layer"}}) {
    restart(options);
    step();
    if (session->adapts()) learn(100.0, 1.0, 0.3);
    step();
    const std::string state = session->save_state();
    step();
    const Codecs uninterrupted = codecs();
    std::vector<std::vector<float>> values;
    for (std::size_t i = 0; i < kept.size(); ++i) values.push_back(restored(i));
    const bool wants_observation = session->wants_observation();

    restart(options);
    step();  // another session does not know
    EXPECT_NE(restored(0), values[0]);
    restart(options);
    session->load_state(state);
    EXPECT_EQ(session->save_state(), state);
    step();
    EXPECT_EQ(codecs(), uninterrupted);
    for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(restored(i), values[i]) << i;
    EXPECT_EQ(session->wants_observation(), wants_observation);
    EXPECT_EQ(session->report().steps, 3);
  }
}

TEST_F(AdaptationTest, other_texts_are_no_state) {
  const auto code_of = [&](const std::string& text) {
    try {
      session->load_state(text);
    } catch (const Error& error) {
      return std::string(to_string(error.code()));
    }
    return std::string("loaded");
  };
  restart({});
  step();
  const std::string state = session->save_state();
  EXPECT_EQ(code_of(state), "invalid_state") << "it has begun already";
  restart({});
  for (const std::string& text : {std::string(), std::string("nothing\n"), state.substr(0, state.size() / 2),
                                  state.substr(0, state.size() - 1), state + "one field\n"}) {
    EXPECT_EQ(code_of(text), "invalid_state") << text;
    EXPECT_EQ(session->saves(), 0);
  }
  EXPECT_EQ(code_of(state), "loaded");
}

TEST_F(AdaptationTest, a_state_with_figures_that_no_session_has_is_none) {
  const auto state = [](const std::string& counts, const std::string& plan, const std::string& site) {
    return "actzip session 3\n" + counts + "\n" + plan + "\na\tmm\tself\t" + site + "\n";
  };
  const std::string counts = "12\t8\t3\t4096\t0.5";
  const std::string plan = "3\t1\t2\t1.5\t4000\t0.25\t-\tinf";
  const std::string site = "0\t3 0 rotated:2\t-\t0.125\t0\t3\t5\t-\t2\t0\t3\t3";
  for (const std::string& text : {
           state("12\t8\t9223372036854775807\t-\t-", plan,
                 site),  // the next step would be beyond what can be counted
           state("12\t-8\t3\t-\t-", plan, site),
           state("12\t8\t3\t-\t-\t4", plan, site),
           state("12\t8\t3\t-1\t-", plan, site),
           state(counts, "3\t2\t2\t1.5\t-\t-\t-\t-", site),
           state(counts, "3\t1\t2\tnan\t-\t-\t-\t-", site),
           state(counts, plan, "-1\t-\t-\t-\t0\t0\t5\t-\t0\t0\t1\t3"),
           state(counts, plan, "0\t4 0 rotated:2\t-\t-\t0\t0\t5\t-\t0\t0\t1\t3"),
           state(counts, plan, "0\t3 0 rotated:9\t-\t-\t0\t0\t5\t-\t0\t0\t1\t3"),
           state(counts, plan, "0\t3 0 rotated:2 more\t-\t-\t0\t0\t5\t-\t0\t0\t1\t3"),
           state(counts, plan, "0\t-\t-\tinf\t0\t0\t5\t-\t0\t0\t1\t3"),
           state(counts, plan, "0\t-\t-\t-0.5\t0\t0\t5\t-\t0\t0\t1\t3"),
           state(counts, plan, "0\t-\t-\t-\t0\t4\t5\t-\t0\t0\t1\t3"),  // no such look
           state(counts, plan, "0\t-\t-\t-\t0\t0\t5\t-\t3\t0\t1\t3"),  // no such part of a step
           state(counts, plan, "0\t-\t-\t-\t0\t0\t5\t-\t0\t0\t9\t3"),  // nor so many bits
           state(counts, plan, "0\t-\t-\t-\t0\t0\t5\t-\t0\t3\t1\t3"),  // nobody holds it so
           state(counts, plan, "0\t-\t-\t-\t0\t2\t5\t-\t0\t0\t1\t3"),  // noisy, but with the usual bits
           state(counts, plan, "0\t-\t-\t-\t0\t1\t5\trotated:4\t0\t0\t1\t3"),
           state(counts, plan, "0\t-\t-\t-\t0\t0\t5\t-\t0\t0\t1\t3\tmore"),
       }) {
    restart({});
    try {
      session->load_state(text);
      ADD_FAILURE() << "loaded: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_state) << error.what();
      EXPECT_EQ(session->report().steps, 0);
    }
  }
  restart({.budget = "1KiB"});
  session->load_state(state(counts, plan, site));
  EXPECT_EQ(session->save_state(), state(counts, plan, site));
}

TEST(AdaptationOptions, refuse_what_contradicts) {
  const auto refuse = [](const SessionOptions& options, const char* text) {
    test::expect_error(ErrorCode::invalid_spec, text, [&] { const Session session(options); });
  };
  refuse({.adapt = "layer+sample"},
         "session: adapt 'layer+sample' (allowed: layer, measured, sample, sample+layer, sample+measured, or nothing)");
  refuse({.preset = "exact", .adapt = "sample"}, "session: preset 'exact' leaves nothing to plan (allowed: default)");
  refuse({.adapt = "layer", .use_gradient = true, .num_samples = 5},
         "session: use_gradient with adapt 'layer' and num_samples 5 (allowed: with sample, and 1 or more samples)");
  refuse({.adapt = "sample", .use_gradient = true},
         "session: use_gradient with adapt 'sample' and num_samples 0 (allowed: with sample, and 1 or more samples)");
  refuse({.bits = 0.5}, "session: bits 0.5 (allowed: 1, 2, 3, 4, 8; or an average from 1 to 8, for a plan)");
  refuse({.preset = "exact", .bits = 5}, "session: preset 'exact' leaves nothing to plan (allowed: default)");
  refuse({.preset = "exact", .adapt = "layer"}, "session: preset 'exact' leaves nothing to plan (allowed: default)");
  refuse({.interval = -1}, "session: interval -1 (allowed: 1 or more)");
}

}  // namespace
}  // namespace actzip
