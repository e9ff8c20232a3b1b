#include "actzip/report.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "actzip/session.hpp"
#include "session_fixture.hpp"

namespace actzip {
namespace {

using test::FakeTensor;
using test::SessionTest;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

SiteReport site_of(std::string name, std::size_t before, std::size_t after, Cause cause = Cause::none) {
  SiteReport site;
  site.site = std::move(name);
  site.codec = cause == Cause::none ? "rotated:2" : "as is";
  site.bytes_before = before;
  site.bytes_after = after;
  site.cause = cause;
  return site;
}

Report report_of(std::vector<SiteReport> sites) {
  Report report;
  report.preset = "default";
  report.steps = 3;
  for (const SiteReport& site : sites) {
    report.bytes_before += site.bytes_before;
    report.bytes_after += site.bytes_after;
  }
  report.sites = std::move(sites);
  return report;
}

TEST(Report, RatioOfNothing) {
  EXPECT_EQ(report_of({}).ratio(), 1.0);
  EXPECT_EQ(report_of({site_of("a", 300, 100)}).ratio(), 3.0);
  EXPECT_TRUE(std::isinf(report_of({site_of("a", 300, 0)}).ratio()));
}

TEST(Report, TheFirstLineSumsUp) {
  const Report report =
      report_of({site_of("a", 2048, 256), site_of("b", 0, 0, Cause::parameter), site_of("c", 0, 0, Cause::parameter),
                 site_of("d", 10, 10, Cause::small), site_of("e", 1014, 1014, Cause::rule)});
  EXPECT_EQ(lines_of(report.to_text()).front(),
            "preset 'default', step 3: held 3.0 KiB -> 1.2 KiB (2.4 times smaller); 5 sites, 4 as is "
            "(2 parameter, 1 small, 1 rule)");
}

TEST(Report, TheFirstLineOfNothing) {
  EXPECT_TRUE(report_of({}).to_text().starts_with("preset 'default', step 3: held 0 B -> 0 B; 0 sites\n"));
  EXPECT_NE(report_of({}).to_text().find("no tensor was saved inside the scope: forward must run in it"),
            std::string::npos);
  EXPECT_NE(Report().to_text().find("no step has begun"), std::string::npos);
  EXPECT_TRUE(contains(report_of({site_of("a", 300, 0)}).to_text(), "held 300 B -> 0 B (nothing is kept); 1 site\n"));
  Report dry = report_of({site_of("a", 300, 100)});
  dry.dry = true;
  EXPECT_TRUE(contains(dry.to_text(), "would hold 300 B -> 100 B"));
}

TEST(Report, TheLargestSitesComeFirstAndTheLastLineCountsTheRest) {
  const Report report = report_of({site_of("weight", 0, 0, Cause::parameter), site_of("coarse", 4000, 50),
                                   site_of("tiny", 20, 20, Cause::small), site_of("fine", 1000, 500)});
  const std::vector<std::string> lines = lines_of(report.to_text());
  ASSERT_EQ(lines.size(), 5U) << report.to_text();
  EXPECT_TRUE(lines[1].starts_with("site ")) << lines[1];
  EXPECT_TRUE(lines[2].starts_with("fine ")) << lines[2];
  EXPECT_TRUE(lines[3].starts_with("coarse ")) << lines[3];
  EXPECT_EQ(lines[4], "2 sites hidden, 20 B -> 20 B; to_text(all=True) shows every site");
}

TEST(Report, AllIsEverySiteInTheOrderOfTheStep) {
  const Report report = report_of({site_of("weight", 0, 0, Cause::parameter), site_of("coarse", 4000, 50),
                                   site_of("tiny", 20, 20, Cause::small), site_of("fine", 1000, 500)});
  const std::vector<std::string> lines = lines_of(report.to_text(/*all=*/true));
  ASSERT_EQ(lines.size(), 6U);
  for (std::size_t i = 0; i < report.sites.size(); ++i) EXPECT_TRUE(lines[i + 2].starts_with(report.sites[i].site));
}

TEST(Report, ManySitesAreNotAllListed) {
  std::vector<SiteReport> sites;
  for (std::size_t i = 1; i <= 30; ++i) sites.push_back(site_of("site" + std::to_string(i), 100 * i, i));
  const Report report = report_of(std::move(sites));
  const std::vector<std::string> lines = lines_of(report.to_text());
  ASSERT_EQ(lines.size(), 23U);
  EXPECT_TRUE(lines[2].starts_with("site30 ")) << lines[2];
  EXPECT_TRUE(lines[21].starts_with("site11 ")) << lines[21];
  EXPECT_TRUE(lines[22].starts_with("10 sites hidden, 5.4 KiB -> 55 B;")) << lines[22];
}

TEST_F(SessionTest, ReportIsTextAndJson) {
  const FakeTensor x;
  keep("say \"hi\"", "self", x.saved());
  const Report report = session->report();
  EXPECT_TRUE(contains(report.to_text(), "an operator that actzip does not know")) << report.to_text();
  EXPECT_TRUE(contains(report.to_json(), R"("op": "say \"hi\"")")) << report.to_json();
  EXPECT_TRUE(contains(report.to_json(), R"("cause": "policy", "kept_at": )")) << report.to_json();
}

TEST_F(SessionTest, WhatIsKeptAsItIsHasACause) {
  restart({.rules = {{"gelu.*", "none"}}});
  const FakeTensor first;
  const FakeTensor second;
  keep("gelu", "self", first.saved());
  keep("amax", "self", second.saved());
  const Report report = session->report();
  EXPECT_EQ(report.sites[0].cause, Cause::rule);
  EXPECT_EQ(report.sites[1].cause, Cause::policy);
  EXPECT_TRUE(contains(report.to_json(), R"("cause": "rule")")) << report.to_json();
}

}  // namespace
}  // namespace actzip
