#include "actzip/session.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actzip/codec.hpp"
#include "actzip/error.hpp"
#include "expect_error.hpp"
#include "operators_of_tests.hpp"
#include "session_fixture.hpp"

namespace actzip {
namespace {

using test::FakeTensor;
using test::SessionTest;

TEST_F(SessionTest, KeepsAndRestores) {
  const FakeTensor x;
  const Kept kept = keep("addmm", "mat1", x.saved());
  ASSERT_EQ(kept.how, Keep::encoded);
  const std::vector<float> restored = values(kept);
  double error = 0;
  double energy = 0;
  for (std::size_t i = 0; i < restored.size(); ++i) {
    error += std::pow(restored[i] - x.values[i], 2);
    energy += std::pow(x.values[i], 2);
  }
  EXPECT_LT(error / energy, 0.2);
  EXPECT_EQ(*kept.site, "addmm.mat1");
  EXPECT_EQ(session->live_bytes(), session->report().bytes_after);
}

TEST_F(SessionTest, WhatSpoiltAGradientIsKeptAsItIsFromThenOn) {
  const FakeTensor x;
  EXPECT_EQ(keep("gelu", "self", x.saved()).how, Keep::encoded);
  const SiteId site = session->site_named("gelu.self");
  EXPECT_FALSE(session->was_looked_at(site));
  EXPECT_EQ(session->note_look(site, /*noise=*/1.0), Remedy::exact);
  session->begin_step();
  EXPECT_EQ(keep("gelu", "self", x.saved()).how, Keep::as_is);
  EXPECT_EQ(session->report().sites[0].cause, Cause::guard);
  const std::string state = session->save_state();
  restart({});
  session->load_state(state);
  session->begin_step();
  EXPECT_EQ(keep("gelu", "self", x.saved()).how, Keep::as_is) << "after it was loaded, too";
  EXPECT_TRUE(session->was_looked_at(session->site_named("gelu.self")));
}

TEST_F(SessionTest, IsGuardedUnlessAPresetAsksForTheSameEverywhere) {
  EXPECT_TRUE(Session().is_guarded());
  EXPECT_TRUE(Session({.preset = "exact"}).is_guarded()) << "a rule may compress";
  for (const char* preset : {"affine:2", "actnn:L3", "gact:L1"}) {
    EXPECT_FALSE(Session({.preset = preset}).is_guarded()) << preset;
    EXPECT_TRUE(Session({.preset = preset, .guard = true}).is_guarded()) << preset;
  }
  EXPECT_FALSE(Session({.guard = false}).is_guarded());
  EXPECT_FALSE(Session({.dry = true, .guard = true}).is_guarded()) << "nothing is compressed";
}

/// Of what it is told to, as an operator does that encodes in one pass with its own work.
void write(const Reservation& reserved, const FakeTensor& tensor) {
  encode(reserved.spec(), tensor.saved().view, reserved.bytes(), reserved.seed(), reserved.stream());
}

TEST_F(SessionTest, AnOperatorMayEncodeForItself) {
  const FakeTensor x;
  const Kept plain = keep("addmm", "mat1", x.saved());
  for (const Written written : {Written::tensor, Written::nothing}) {
    restart({});
    Reservation reserved = reserve("addmm", "mat1", x.saved());
    ASSERT_TRUE(reserved.wants_bytes());
    EXPECT_EQ(reserved.tensor().view.data, x.values.data());
    EXPECT_TRUE(session->report().sites.empty()) << "not yet kept";
    if (written == Written::tensor) write(reserved, x);
    const Kept kept = session->keep(std::move(reserved), written);
    EXPECT_EQ(values(kept), values(plain));
    const Encoding encoding = encoding_of(kept, Stream(), memory);
    EXPECT_EQ(to_string(encoding.spec), session->report().sites.at(0).codec);
    EXPECT_EQ(encoding.bytes.size, session->report().bytes_after);
    EXPECT_FALSE(reserve("mm", "self", x.saved()).wants_bytes()) << "memory that is kept already";
  }
}

TEST_F(SessionTest, WhatAnOperatorEncodesInsteadIsItsOwn) {
  const FakeTensor x;
  Reservation reserved = reserve("addmm", "mat1", x.saved());
  write(reserved, FakeTensor(4096, 1.0F));
  const Kept own = session->keep(std::move(reserved), Written::own);
  const Kept plain = keep("linear", "input", x.saved());  // asks for the same bits
  EXPECT_NE(own.blob, plain.blob);
  EXPECT_NE(values(own), values(plain));
  const Kept again = keep("mm", "self", x.saved());
  EXPECT_EQ(again.blob, plain.blob);
}

TEST_F(SessionTest, WhatWantsNoBytesIsKeptAsItIs) {
  const FakeTensor small(16);
  Reservation reserved = reserve("addmm", "mat1", small.saved());
  EXPECT_FALSE(reserved.wants_bytes());
  EXPECT_EQ(session->keep(std::move(reserved), Written::nothing).how, Keep::as_is);
  EXPECT_EQ(session->report().sites.at(0).cause, Cause::small);
}

TEST_F(SessionTest, WhatIsKeptAsItIsIsFoundAgainWhoeverWouldHaveEncodedIt) {
  const FakeTensor x;
  EXPECT_FALSE(reserve("mylib::relu", "self", x.saved()).wants_bytes());
  const Kept as_is = session->keep(reserve("mylib::relu", "self", x.saved()), Written::own);
  const Kept shared = keep("mm", "self", x.saved());
  EXPECT_EQ(session->report().sites[1].kind, SiteKind::shared);
  EXPECT_EQ(session->report().bytes_before, x.values.size() * sizeof(float)) << "counted once";

  const FakeTensor y;
  SavedTensor again = y.saved();
  again.facts.recomputable = true;
  const Kept marked = session->keep(reserve("attention", "result", again), Written::own);
  const Kept beside = keep("mm", "mat2", y.saved());
  EXPECT_EQ(session->report().sites[2].kind, SiteKind::recomputed);
  EXPECT_EQ(session->report().bytes_before, (x.values.size() + y.values.size()) * sizeof(float));
}

TEST_F(SessionTest, RoomThatNobodyUsesCountsForNothing) {
  const FakeTensor x;
  const FakeTensor other(4096, 2.0F);
  const Kept source = keep("batch_norm", "input", x.saved());
  const std::string report = session->report().to_json();
  const std::int64_t saves = session->saves();
  const std::size_t live = session->live_bytes();
  for (const char* op : {"addmm.mat1", "relu.result", "attention.query", "max_pool.self", "unknown.self"}) {
    const std::string_view name(op);
    const auto dot = name.find('.');
    (void)session->reserve(session->site(test::site_key("", name.substr(0, dot), name.substr(dot + 1))), other.saved(),
                           Stream(), memory);
  }
  (void)reserve("addmm", "mat1", x.saved());  // shared
  EXPECT_EQ(session->report().to_json(), report);
  EXPECT_EQ(session->saves(), saves);
  EXPECT_EQ(session->live_bytes(), live);
  const Kept kept = keep("addmm", "mat1", other.saved());
  EXPECT_EQ(session->report().sites.at(1).kind, SiteKind::encoded) << "nobody has kept it before";
}

TEST_F(SessionTest, WhatIsReservedOutlivesTheSession) {
  const FakeTensor x;
  const Reservation reserved = reserve("addmm", "mat1", x.saved());
  session.reset();
  write(reserved, x);
}

TEST_F(SessionTest, BlobsOutliveTheSession) {
  const FakeTensor x;
  const Kept kept = keep("addmm", "mat1", x.saved());
  const std::vector<float> before = values(kept);
  session.reset();
  EXPECT_EQ(values(kept), before);
}

TEST_F(SessionTest, FreesWithTheLastCopy) {
  const FakeTensor x;
  Kept kept = keep("addmm", "mat1", x.saved());
  Kept copy = kept;
  const Allocation restored = restore(kept, Stream(), memory);
  kept = {};
  EXPECT_GT(session->live_bytes(), 0U);
  copy = {};
  EXPECT_EQ(session->live_bytes(), 0U);
  EXPECT_EQ(restored.owner.use_count(), 1) << "the decode cache still holds it";
}

TEST_F(SessionTest, SameMemoryIsKeptOnceAndDecodedOnce) {
  const FakeTensor x;
  const Kept q = keep("addmm", "mat1", x.saved());
  const Kept k = keep("mm", "self", x.saved());
  EXPECT_EQ(q.blob, k.blob);
  EXPECT_EQ(codecs(), (std::vector<std::string>{"rotated:3", "shared"}));
  EXPECT_EQ(restore(q, Stream(), memory).data, restore(k, Stream(), memory).data);
}

TEST_F(SessionTest, OtherVersionOtherMemoryOtherBlob) {
  FakeTensor x;
  const Kept first = keep("addmm", "mat1", x.saved());
  x.version = 1;
  EXPECT_NE(keep("mm", "self", x.saved()).blob, first.blob);
  const FakeTensor other;
  EXPECT_NE(keep("mm", "self", other.saved()).blob, first.blob);
}

TEST_F(SessionTest, ALessFaithfulBlobDoesNotServe) {
  const FakeTensor x;
  const Kept coarse = keep("addmm", "mat1", x.saved());
  const Kept fine = keep("softmax", "result", x.saved());
  EXPECT_NE(fine.blob, coarse.blob);
  EXPECT_EQ(keep("gelu", "self", x.saved()).how, Keep::encoded);
  EXPECT_EQ(codecs(), (std::vector<std::string>{"rotated:3", "affine:8", "shared"}));
}

TEST_F(SessionTest, CastsOfOneSourceAreOne) {
  const FakeTensor a;
  const FakeTensor b;
  SavedTensor first = a.saved();
  SavedTensor second = b.saved();
  first.source = second.source = {.id = 7};
  const Kept kept = keep("addmm", "mat1", first);
  EXPECT_EQ(keep("addmm", "mat1", second).blob, kept.blob);
  second.source.offset = 64;
  EXPECT_NE(keep("addmm", "mat1", second).blob, kept.blob) << "another part of the cast";
  second.source = {.id = 8};
  EXPECT_NE(keep("addmm", "mat1", second).blob, kept.blob);
}

TEST_F(SessionTest, MemoryOfAnEarlierStepIsNotTakenForThatOfThisOne) {
  const FakeTensor x;
  const Kept before = keep("addmm", "mat1", x.saved());
  session->begin_step();
  EXPECT_NE(keep("addmm", "mat1", x.saved()).blob, before.blob) << "it may have been written to since";
}

TEST_F(SessionTest, ReluLearnsAndStaysExact) {
  FakeTensor x;
  x.relu();
  const std::vector<std::vector<std::string>> expected = {{"mask", "rotated:2:mask"}, {"rotated:2:mask", "shared"}};
  for (const auto& step : expected) {
    session->begin_step();
    const Kept mask = keep("relu", "result", x.saved());
    const Kept layer = keep("convolution", "input", x.saved());
    EXPECT_EQ(codecs(), step);
    const std::vector<float> bits = values(mask);
    const std::vector<float> decoded = values(layer);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      ASSERT_EQ(bits[i] > 0, x.values[i] > 0) << i;
      ASSERT_TRUE(x.values[i] != 0 || decoded[i] == 0) << i;
    }
  }
}

TEST_F(SessionTest, TheFirstSaverLearnsWhatTheOthersAskFor) {
  const FakeTensor x;
  const std::vector<std::vector<std::string>> expected = {{"rotated:3", "affine:8"}, {"affine:8", "shared"}};
  for (const auto& step : expected) {
    session->begin_step();
    const Kept coarse = keep("addmm", "mat1", x.saved());
    const Kept fine = keep("softmax", "result", x.saved());
    EXPECT_EQ(codecs(), step);
    EXPECT_EQ(session->report().bytes_before, x.values.size() * sizeof(float)) << "the same memory counts once";
  }
}

TEST_F(SessionTest, AReluLearnsNothingThatHasNoMask) {
  FakeTensor x;
  x.relu();
  for (int step = 0; step < 3; ++step) {
    session->begin_step();
    const Kept mask = keep("relu", "result", x.saved());
    const Kept layer = keep("convolution", "input", x.saved());
    const Kept product = keep("softmax", "result", x.saved());
    EXPECT_EQ(codecs(), step == 0 ? (std::vector<std::string>{"mask", "rotated:2:mask", "affine:8"})
                                  : (std::vector<std::string>{"rotated:2:mask", "shared", "affine:8"}));
  }
}

TEST_F(SessionTest, NoMaskBesideWhatIsKeptAsItIs) {
  session.emplace(SessionOptions{.preset = "exact", .min_elems = 0});
  FakeTensor x(1 << 15);
  x.relu();
  for (const char* first : {"mask", "as is"}) {
    session->begin_step();
    const Kept mask = keep("relu", "result", x.saved());
    const Kept layer = keep("convolution", "input", x.saved());
    EXPECT_EQ(codecs().front(), first);
  }
}

TEST_F(SessionTest, AMaskPlaneDoesNotServeTensorsWithNegatives) {
  const FakeTensor x;
  SavedTensor saved = x.saved();
  const Kept leaky = keep("leaky_relu", "self", saved);
  const Kept layer = keep("convolution", "input", saved);
  EXPECT_EQ(codecs(), (std::vector<std::string>{"mask", "rotated:2"}));
}

TEST_F(SessionTest, ParametersSmallAndUnsupportedStay) {
  const FakeTensor x;
  SavedTensor parameter = x.saved();
  parameter.role = Role::parameter;
  parameter.role_reason = "a parameter";
  EXPECT_EQ(keep("addmm", "mat2", parameter).how, Keep::as_is);
  const FakeTensor small(10);
  EXPECT_EQ(keep("addmm", "mat1", small.saved()).how, Keep::as_is);
  const Report report = session->report();
  EXPECT_EQ(report.sites[0].bytes_before, 0U);
  EXPECT_EQ(report.sites[0].reason, "a parameter");
  EXPECT_EQ(report.sites[1].reason, "small");
  EXPECT_EQ(report.sites[1].bytes_after, 40U);
  EXPECT_EQ(report.sites[0].cause, Cause::parameter);
  EXPECT_EQ(report.sites[1].cause, Cause::small);
}

TEST_F(SessionTest, WhatIsKeptAsItIsServesEverybody) {
  restart({.preset = "exact"});
  const FakeTensor x(1 << 15);
  const Kept first = keep("addmm", "mat1", x.saved());
  const Kept second = keep("gelu", "self", x.saved());
  EXPECT_EQ(codecs(), (std::vector<std::string>{"as is", "shared"}));
  EXPECT_EQ(second.how, Keep::as_is);
}

TEST_F(SessionTest, DryKeepsNothingAndCountsTheSame) {
  FakeTensor x;
  x.relu();
  const auto run = [&](bool dry) {
    restart({.dry = dry});
    const Kept a = keep("relu", "result", x.saved());
    const Kept b = keep("convolution", "input", x.saved());
    const Kept c = keep("max_pool", "self", x.saved());
    EXPECT_EQ(c.how, dry ? Keep::as_is : Keep::shape_only);
    EXPECT_EQ(a.how, dry ? Keep::as_is : Keep::encoded);
    return session->report();
  };
  const Report real = run(false);
  const Report dry = run(true);
  EXPECT_EQ(dry.bytes_after, real.bytes_after);
  EXPECT_EQ(dry.bytes_before, real.bytes_before);
  EXPECT_EQ(dry.live_bytes, 0U);
}

TEST_F(SessionTest, ShapeOnlyKeepsNothing) {
  const FakeTensor x;
  const int before = memory.allocations;
  const Kept kept = keep("max_pool", "self", x.saved());
  EXPECT_EQ(kept.how, Keep::shape_only);
  EXPECT_EQ(memory.allocations, before);
  EXPECT_EQ(session->report().bytes_before, x.values.size() * sizeof(float));
}

TEST_F(SessionTest, WhatRunsAgainIsCountedOnceAndTeachesNobody) {
  const FakeTensor x;
  const std::size_t bytes = x.values.size() * sizeof(float);
  SavedTensor result = x.saved();
  result.facts.recomputable = true;
  for (int step = 0; step < 3; ++step) {
    session->begin_step();
    const int before = memory.allocations;
    const Kept again = keep("attention", "result", result);
    EXPECT_EQ(again.how, Keep::recomputed);
    EXPECT_EQ(memory.allocations, before);
    const Kept product = keep("addmm", "mat1", x.saved());  // of the same memory
    EXPECT_EQ(product.how, Keep::encoded);
    EXPECT_EQ(codecs(), (std::vector<std::string>{"recomputed", "rotated:3"}));
    EXPECT_EQ(session->report().bytes_before, bytes);
  }
  EXPECT_EQ(session->live_bytes(), 0U);
}

TEST_F(SessionTest, OneSiteAloneIsCompressedAndSharesNothing) {
  restart({.only = "mm.self"});
  const FakeTensor x;
  EXPECT_EQ(keep("addmm", "mat1", x.saved()).how, Keep::as_is);
  EXPECT_EQ(keep("mm", "self", x.saved()).how, Keep::encoded);
  EXPECT_EQ(keep("max_pool", "self", x.saved()).how, Keep::as_is);
}

TEST_F(SessionTest, ErrorsNameTheSite) {
  const FakeTensor x;
  SavedTensor tensor = x.saved();
  tensor.view.data = reinterpret_cast<const std::byte*>(tensor.view.data) + 1;
  try {
    keep("addmm", "mat1", tensor);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::misaligned);
    EXPECT_EQ(std::string(error.what()).find("addmm.mat1: "), 0U) << error.what();
  }
  EXPECT_EQ(session->live_bytes(), 0U);
}

TEST_F(SessionTest, SitesAreStableAndTheReportIsOfTheLastStep) {
  const FakeTensor x;
  const SiteId site = session->site({"layers.0", "addmm", "mat1", 1});
  EXPECT_EQ(session->site({"layers.0", "addmm", "mat1", 1}), site);
  EXPECT_NE(session->site(test::site_key("layers.0", "addmm", "mat1")), site);
  EXPECT_EQ(session->site_name(site), "layers.0: addmm.mat1 #1");
  session->begin_step();
  keep("gelu", "self", x.saved());
  session->begin_step();
  keep("mm", "self", x.saved());
  const Report report = session->report();
  ASSERT_EQ(report.sites.size(), 1U);
  EXPECT_EQ(report.sites[0].site, "mm.self");
  EXPECT_EQ(report.steps, 2);
}

TEST_F(SessionTest, SeedsRepeatAndDiffer) {
  const FakeTensor x;
  const auto decoded = [&](std::uint64_t seed) {
    restart({.seed = seed});
    return values(keep("addmm", "mat1", x.saved()));
  };
  EXPECT_EQ(decoded(1), decoded(1));
  EXPECT_NE(decoded(1), decoded(2));
}

}  // namespace
}  // namespace actzip
