import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.WallclockTimestampExtractor;

/** The queries of bench/nexmark/queries.py. The environment names the topics: TOPIC_PERSON, TOPIC_AUCTION, TOPIC_BID, TOPIC_SIDE. */
final class Nexmark {
    record Person(long id, String name, String emailAddress, String creditCard, String city, String state, long dateTime, String extra) { }
    record Auction(long id, String itemName, String description, long initialBid, long reserve, long dateTime, long expires,
                   long seller, int category, String extra) { }
    record Bid(long auction, long bidder, long price, String channel, String url, long dateTime, String extra) { }
    record Side(long key, String value) { }
    record Converted(long auction, long bidder, double price, long dateTime, String extra) { }
    record Price(long auction, long price) { }
    record Seller(String name, String city, String state) { }
    record Sold(long id, long seller) { }
    record Found(String name, String city, String state, long id) { }
    record Opened(long seller, int category, long expires) { }
    record InTime(long seller, int category, long expires, long auction, long bidder, long price, String channel, String url,
                  long dateTime, String extra) { }
    record Highest(int category, long price) { }
    record Total(long sum, long count) { }
    record Average(long category, double average) { }
    record Hot(long auction, long bids) { }
    record Hottest(long start, List<Long> auctions, long bids) { }
    record Kept(long auction, long price, long bidder, long dateTime, String extra) { }
    record Best(long start, List<Kept> bids) { }
    record Came(long id, String name, long start, @JsonProperty("same") boolean same) { }
    record New(long id, String name, long start) { }
    record At(long dateTime) { }
    record Named(long id, String name, long dateTime) { }
    record Filed(long auction, long bidder, long price, String channel, String url, long dateTime, String extra, String day, String minute) { }
    record Count(long bids) { }
    record Joined(long auction, long bidder, long price, long dateTime, String side) { }
    record Timed(long auction, long bidder, double price, String time, long dateTime, String extra, long c) { }
    record Day(long n0, long n1, long n2, long n3, long smallest, long largest, long total) { }
    record DayMean(long n0, long n1, long n2, long n3, long smallest, long largest, long total, double average) { }
    record Ten(List<Bid> bids) { }
    record Both(long auction, long bidder, long price, String channel, String url, long dateTime, String extra, String itemName,
                String description, long initialBid, long reserve, long expires, long seller, int category, long opened) { }
    record Channel(long auction, long bidder, long price, String channel, @JsonProperty("channel_id") String channelId) { }
    record Sale(long expires, long auction, long price) { }
    record SellerMean(long seller, double average) { }
    record Counts(long n0, long n1, long n2, long n3, long last) { }
    record Sums(long[] bids, long[] keys, long last) { }
    record DayNumbers(String day, long bids0, long bids1, long bids2, long bids3, long auctions0, long auctions1, long auctions2, long auctions3,
                      long bidders0, long bidders1, long bidders2, long bidders3) { }
    record ChannelNumbers(String channel, String day, long bids0, long bids1, long bids2, long bids3, long auctions0, long auctions1,
                          long auctions2, long auctions3, long bidders0, long bidders1, long bidders2, long bidders3, long last) { }
    record Folders(long auction, long bidder, long price, String channel, String dir1, String dir2, String dir3) { }

    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final Serde<String> TEXT = Serdes.String();
    private static final Duration GRACE = Duration.ofHours(1);
    private static final Duration TEN = Duration.ofSeconds(10);
    private static final Set<String> STATES = Set.of("OR", "ID", "CA");
    private static final Pattern CHANNEL_ID = Pattern.compile("(?:&|^)channel_id=([^&]*)");
    private static final Map<String, String> CHANNELS = Map.of("apple", "0", "google", "1", "facebook", "2", "baidu", "3");
    private static final DateTimeFormatter DAY = DateTimeFormatter.ofPattern("yyyy-MM-dd");
    private static final DateTimeFormatter MINUTE = DateTimeFormatter.ofPattern("HH:mm");
    private static final int HIGHEST_BIDS = 10;
    private static final int LAST_AUCTIONS = 10;
    private static final long LOW = 10_000;
    private static final long HIGH = 1_000_000;

    private final StreamsBuilder builder = new StreamsBuilder();
    private final Serde<Bid> bid = json(new TypeReference<>() { });

    private Nexmark() { }

    static Topology topology(String query) {
        Nexmark nexmark = new Nexmark();
        nexmark.add(query);
        return nexmark.builder.build();
    }

    private static <T> Serde<T> json(TypeReference<T> type) {
        return JsonSerde.of(MAPPER, type);
    }

    private static String setting(String name) {
        return System.getenv(name);
    }

    private KStream<String, Bid> bids() {
        return builder.stream(setting("TOPIC_BID"), Consumed.with(TEXT, bid));
    }

    private KStream<String, Auction> auctions() {
        return builder.stream(setting("TOPIC_AUCTION"), Consumed.with(TEXT, json(new TypeReference<Auction>() { })));
    }

    private KStream<String, Person> persons() {
        return builder.stream(setting("TOPIC_PERSON"), Consumed.with(TEXT, json(new TypeReference<Person>() { })));
    }

    private static <T> void write(KStream<String, T> results, TypeReference<T> type) {
        results.to(setting("TOPIC_OUT"), Produced.with(TEXT, json(type)));
    }

    private static LocalDateTime at(long time) {
        return LocalDateTime.ofInstant(Instant.ofEpochMilli(time), ZoneOffset.UTC);
    }

    private static long window(long time) {
        return time / 10_000 * 10_000;
    }

    private KStream<String, InTime> bidsInTime() {
        Serde<Opened> opened = json(new TypeReference<>() { });
        Duration longest = Duration.ofMillis(Long.parseLong(setting("LONGEST_AUCTION_MS")));
        return auctions().mapValues(a -> new Opened(a.seller(), a.category(), a.expires()))
            .join(bids(),
                  (a, b) -> new InTime(a.seller(), a.category(), a.expires(), b.auction(), b.bidder(), b.price(), b.channel(), b.url(),
                                       b.dateTime(), b.extra()),
                  JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, GRACE).after(longest),
                  StreamJoined.with(TEXT, opened, bid))
            .filter((key, b) -> b.dateTime() <= b.expires());
    }

    private static InTime better(InTime won, InTime other) {
        if (won.price() != other.price()) {
            return won.price() > other.price() ? won : other;
        }
        if (won.dateTime() != other.dateTime()) {
            return won.dateTime() < other.dateTime() ? won : other;
        }
        return won.bidder() <= other.bidder() ? won : other;
    }

    private static List<Hot> hotter(List<Hot> best, Hot one) {
        if (best.isEmpty() || one.bids() > best.get(0).bids()) {
            return List.of(one);
        }
        return one.bids() == best.get(0).bids() ? with(best, one) : best;
    }

    private static List<Kept> higher(List<Kept> best, Kept one) {
        if (best.isEmpty() || one.price() > best.get(0).price()) {
            return List.of(one);
        }
        return one.price() == best.get(0).price() ? with(best, one) : best;
    }

    private static List<Kept> highest(List<Kept> best, List<Kept> bids) {
        if (best.isEmpty() || bids.get(0).price() > best.get(0).price()) {
            return bids;
        }
        if (bids.get(0).price() < best.get(0).price()) {
            return best;
        }
        List<Kept> both = best.stream().filter(each -> each.auction() != bids.get(0).auction()).collect(Collectors.toCollection(ArrayList::new));
        both.addAll(bids);
        return both;
    }

    private static <T> List<T> with(List<T> some, T one) {
        List<T> all = new ArrayList<>(some);
        all.add(one);
        return all;
    }

    private static List<Bid> ten(List<Bid> best, Bid one) {
        if (best.size() == HIGHEST_BIDS && one.price() <= best.get(HIGHEST_BIDS - 1).price()) {
            return best;
        }
        List<Bid> all = with(best, one);
        all.sort(Comparator.comparingLong((Bid each) -> -each.price()));
        return all.size() > HIGHEST_BIDS ? new ArrayList<>(all.subList(0, HIGHEST_BIDS)) : all;
    }

    private static Day priced(Day day, long price) {
        return new Day(day.n0() + 1, day.n1() + (price < LOW ? 1 : 0), day.n2() + (price >= LOW && price < HIGH ? 1 : 0),
                       day.n3() + (price >= HIGH ? 1 : 0), day.n0() == 0 ? price : Math.min(day.smallest(), price),
                       Math.max(day.largest(), price), day.total() + price);
    }

    private static Timed timed(Bid b) {
        int hour = at(b.dateTime()).getHour();
        String time = hour >= 8 && hour <= 18 ? "day" : hour <= 6 || hour >= 20 ? "night" : "other";
        long c = b.extra().chars().filter(each -> each == 'c').count();
        return new Timed(b.auction(), b.bidder(), b.price() * 0.908, time, b.dateTime(), b.extra(), c);
    }

    private static Channel channel(Bid b) {
        String number = CHANNELS.get(b.channel().toLowerCase());
        if (number == null) {
            Matcher found = CHANNEL_ID.matcher(b.url());
            number = found.find() ? found.group(1) : null;
        }
        return new Channel(b.auction(), b.bidder(), b.price(), b.channel(), number);
    }

    private static Folders folders(Bid b) {
        String[] parts = b.url().split("/");
        return new Folders(b.auction(), b.bidder(), b.price(), b.channel(), parts[3], parts[4], parts[5]);
    }

    private void add(String query) {
        switch (query) {
            case "q0" -> write(bids(), new TypeReference<>() { });
            case "q1" -> write(bids().mapValues(b -> new Converted(b.auction(), b.bidder(), b.price() * 0.908, b.dateTime(), b.extra())),
                               new TypeReference<>() { });
            case "q2" -> write(bids().filter((key, b) -> b.auction() % 123 == 0).mapValues(b -> new Price(b.auction(), b.price())),
                               new TypeReference<>() { });
            case "q3" -> q3();
            case "q4" -> q4();
            case "q5" -> q5();
            case "q6" -> q6();
            case "q7" -> q7();
            case "q8" -> q8();
            case "q9" -> write(winners().toStream(), new TypeReference<>() { });
            case "q10" -> write(bids().mapValues(b -> {
                LocalDateTime time = at(b.dateTime());
                return new Filed(b.auction(), b.bidder(), b.price(), b.channel(), b.url(), b.dateTime(), b.extra(), DAY.format(time), MINUTE.format(time));
            }), new TypeReference<>() { });
            case "q11" -> write(bids().map((key, b) -> KeyValue.pair(Long.toString(b.bidder()), 1)).groupByKey(Grouped.with(TEXT, Serdes.Integer()))
                .windowedBy(SessionWindows.ofInactivityGapAndGrace(TEN, GRACE)).count()
                .toStream((key, count) -> key.key() + "@" + key.window().start() + "-" + key.window().end())
                .mapValues(count -> count == null ? null : new Count(count)), new TypeReference<>() { });
            case "q12" -> write(
                builder.stream(setting("TOPIC_BID"), Consumed.with(TEXT, bid).withTimestampExtractor(new WallclockTimestampExtractor()))
                .map((key, b) -> KeyValue.pair(Long.toString(b.bidder()), 1)).groupByKey(Grouped.with(TEXT, Serdes.Integer()))
                .windowedBy(TimeWindows.ofSizeAndGrace(TEN, GRACE)).count()
                .toStream((key, count) -> key.key() + "@" + key.window().start()).mapValues(Count::new), new TypeReference<>() { });
            case "q13" -> {
                GlobalKTable<String, Side> side = builder.globalTable(
                    setting("TOPIC_SIDE"), Consumed.with(TEXT, json(new TypeReference<Side>() { })));
                write(bids().join(side, (key, b) -> Long.toString(b.auction() % 10_000),
                                  (b, s) -> new Joined(b.auction(), b.bidder(), b.price(), b.dateTime(), s.value())), new TypeReference<>() { });
            }
            case "q14" -> write(bids().filter((key, b) -> b.price() * 0.908 > 1_000_000 && b.price() * 0.908 < 50_000_000)
                                .mapValues(Nexmark::timed), new TypeReference<>() { });
            case "q15" -> q15();
            case "q16" -> q16();
            case "q17" -> write(bids().groupByKey(Grouped.with(TEXT, bid))
                .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofDays(1), GRACE))
                .aggregate(() -> new Day(0, 0, 0, 0, 0, 0, 0), (key, b, day) -> priced(day, b.price()),
                           Materialized.with(TEXT, json(new TypeReference<Day>() { })))
                .toStream((key, day) -> key.key() + "@" + DAY.format(at(key.window().start())))
                .mapValues(d -> new DayMean(d.n0(), d.n1(), d.n2(), d.n3(), d.smallest(), d.largest(), d.total(), (double) d.total() / d.n0())),
                new TypeReference<>() { });
            case "q18" -> write(bids().selectKey((key, b) -> b.bidder() + "|" + b.auction()).groupByKey(Grouped.with(TEXT, bid))
                .reduce((before, b) -> b, Materialized.with(TEXT, bid)).toStream(), new TypeReference<>() { });
            case "q19" -> write(bids().groupByKey(Grouped.with(TEXT, bid))
                .aggregate(List::<Bid>of, (key, b, best) -> ten(best, b), Materialized.with(TEXT, json(new TypeReference<List<Bid>>() { })))
                .toStream().mapValues(Ten::new), new TypeReference<>() { });
            case "q20" -> write(bids().join(
                auctions().filter((key, a) -> a.category() == 10),
                (b, a) -> new Both(b.auction(), b.bidder(), b.price(), b.channel(), b.url(), b.dateTime(), b.extra(), a.itemName(),
                                   a.description(), a.initialBid(), a.reserve(), a.expires(), a.seller(), a.category(), a.dateTime()),
                JoinWindows.ofTimeDifferenceAndGrace(Duration.ofDays(1), GRACE),
                StreamJoined.with(TEXT, bid, json(new TypeReference<Auction>() { }))), new TypeReference<>() { });
            case "q21" -> write(bids().mapValues(Nexmark::channel).filter((key, c) -> c.channelId() != null), new TypeReference<>() { });
            case "q22" -> write(bids().mapValues(Nexmark::folders), new TypeReference<>() { });
            default -> throw new IllegalArgumentException(query);
        }
    }

    private void q3() {
        KTable<String, Seller> sellers = persons().filter((key, p) -> STATES.contains(p.state()))
            .mapValues(p -> new Seller(p.name(), p.city(), p.state()))
            .toTable(Materialized.with(TEXT, json(new TypeReference<Seller>() { })));
        KTable<String, Sold> sold = auctions().filter((key, a) -> a.category() == 10).mapValues(a -> new Sold(a.id(), a.seller()))
            .toTable(Materialized.with(TEXT, json(new TypeReference<Sold>() { })));
        KTable<String, Found> found = sold.join(
            sellers, s -> Long.toString(s.seller()), (s, p) -> new Found(p.name(), p.city(), p.state(), s.id()),
            Materialized.with(TEXT, json(new TypeReference<Found>() { })));
        write(found.toStream(), new TypeReference<>() { });
    }

    private void q4() {
        Serde<Highest> highest = json(new TypeReference<>() { });
        KTable<String, Total> totals = bidsInTime().mapValues(b -> new Highest(b.category(), b.price()))
            .groupByKey(Grouped.with(TEXT, highest))
            .reduce((one, other) -> new Highest(other.category(), Math.max(one.price(), other.price())), Materialized.with(TEXT, highest))
            .groupBy((key, h) -> KeyValue.pair(Integer.toString(h.category()), h.price()), Grouped.with(TEXT, Serdes.Long()))
            .aggregate(() -> new Total(0, 0), (key, price, t) -> new Total(t.sum() + price, t.count() + 1),
                       (key, price, t) -> new Total(t.sum() - price, t.count() - 1),
                       Materialized.with(TEXT, json(new TypeReference<Total>() { })));
        write(totals.toStream().mapValues((key, t) -> new Average(Long.parseLong(key), (double) t.sum() / t.count())), new TypeReference<>() { });
    }

    private void q5() {
        KTable<String, List<Hot>> hottest = bids().mapValues(b -> 1).groupByKey(Grouped.with(TEXT, Serdes.Integer()))
            .windowedBy(TimeWindows.ofSizeAndGrace(TEN, GRACE).advanceBy(Duration.ofSeconds(2))).count()
            .toStream().map((key, n) -> KeyValue.pair(Long.toString(key.window().start()), new Hot(Long.parseLong(key.key()), n)))
            .groupByKey(Grouped.with(TEXT, json(new TypeReference<Hot>() { })))
            .aggregate(List::<Hot>of, (key, one, best) -> hotter(best, one), Materialized.with(TEXT, json(new TypeReference<List<Hot>>() { })));
        write(hottest.toStream().mapValues((key, best) -> new Hottest(
            Long.parseLong(key), best.stream().map(Hot::auction).sorted().toList(), best.get(0).bids())), new TypeReference<>() { });
    }

    private KTable<String, InTime> winners() {
        Serde<InTime> row = json(new TypeReference<>() { });
        return bidsInTime().groupByKey(Grouped.with(TEXT, row)).reduce(Nexmark::better, Materialized.with(TEXT, row));
    }

    private static List<Sale> lastOf(List<Sale> last, Sale sale) {
        List<Sale> all = with(last, sale);
        all.sort(Comparator.comparingLong(Sale::expires).thenComparingLong(Sale::auction));
        return all.size() > LAST_AUCTIONS ? new ArrayList<>(all.subList(all.size() - LAST_AUCTIONS, all.size())) : all;
    }

    private void q6() {
        KTable<String, List<Sale>> last = winners()
            .groupBy((key, won) -> KeyValue.pair(Long.toString(won.seller()), new Sale(won.expires(), won.auction(), won.price())),
                     Grouped.with(TEXT, json(new TypeReference<Sale>() { })))
            .aggregate(List::<Sale>of, (key, sale, all) -> lastOf(all, sale),
                       (key, sale, all) -> all.stream().filter(each -> each.auction() != sale.auction()).toList(),
                       Materialized.with(TEXT, json(new TypeReference<List<Sale>>() { })));
        write(last.toStream().mapValues((key, sales) -> new SellerMean(
            Long.parseLong(key), (double) sales.stream().mapToLong(Sale::price).sum() / sales.size())), new TypeReference<>() { });
    }

    /** The bids of each key and day, in all and in each band. */
    private KTable<Windowed<String>, Counts> counts(KStream<String, Bid> bids) {
        Serde<Counts> counts = json(new TypeReference<>() { });
        return bids.mapValues(b -> new Counts(1, b.price() < LOW ? 1 : 0, b.price() >= LOW && b.price() < HIGH ? 1 : 0,
                                              b.price() >= HIGH ? 1 : 0, b.dateTime()))
            .groupByKey(Grouped.with(TEXT, counts))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofDays(1), GRACE))
            .reduce((one, other) -> new Counts(one.n0() + other.n0(), one.n1() + other.n1(), one.n2() + other.n2(), one.n3() + other.n3(),
                                               Math.max(one.last(), other.last())), Materialized.with(TEXT, counts));
    }

    /** Counts of keys and days added up by group: the bids, and how many keys have any. */
    private static KTable<String, Sums> sums(KTable<Windowed<String>, Counts> counts, Function<Windowed<String>, String> group) {
        return counts.groupBy((key, c) -> KeyValue.pair(group.apply(key), c), Grouped.with(TEXT, json(new TypeReference<Counts>() { })))
            .aggregate(() -> new Sums(new long[4], new long[4], 0), (key, c, sums) -> added(sums, c, 1), (key, c, sums) -> added(sums, c, -1),
                       Materialized.with(TEXT, json(new TypeReference<Sums>() { })));
    }

    private static Sums added(Sums sums, Counts counts, int sign) {
        long[] each = {counts.n0(), counts.n1(), counts.n2(), counts.n3()};
        long[] bids = sums.bids().clone();
        long[] keys = sums.keys().clone();
        for (int band = 0; band < each.length; band++) {
            bids[band] += sign * each[band];
            keys[band] += each[band] > 0 ? sign : 0;
        }
        return new Sums(bids, keys, Math.max(sums.last(), counts.last()));
    }

    private static String day(Windowed<String> key) {
        return DAY.format(at(key.window().start()));
    }

    private void q15() {
        KTable<String, Sums> auctions = sums(counts(bids()), Nexmark::day);
        KTable<String, Sums> bidders = sums(counts(bids().selectKey((key, b) -> Long.toString(b.bidder()))), Nexmark::day);
        write(auctions.join(bidders, DistinctSums::new).toStream().mapValues((day, n) -> n.ofDay(day)), new TypeReference<>() { });
    }

    private void q16() {
        Function<Windowed<String>, String> group = key -> key.key().substring(0, key.key().indexOf('|')) + "|" + day(key);
        KTable<String, Sums> auctions = sums(counts(bids().selectKey((key, b) -> b.channel() + "|" + b.auction())), group);
        KTable<String, Sums> bidders = sums(counts(bids().selectKey((key, b) -> b.channel() + "|" + b.bidder())), group);
        write(auctions.join(bidders, DistinctSums::new).toStream().mapValues((key, n) -> n.ofChannel(key)), new TypeReference<>() { });
    }

    /** Sums by auction and by bidder. */
    record DistinctSums(Sums auctions, Sums bidders) {
        DayNumbers ofDay(String day) {
            long[] b = auctions.bids();
            long[] a = auctions.keys();
            long[] k = bidders.keys();
            return new DayNumbers(day, b[0], b[1], b[2], b[3], a[0], a[1], a[2], a[3], k[0], k[1], k[2], k[3]);
        }

        ChannelNumbers ofChannel(String key) {
            long[] b = auctions.bids();
            long[] a = auctions.keys();
            long[] k = bidders.keys();
            int end = key.indexOf('|');
            return new ChannelNumbers(key.substring(0, end), key.substring(end + 1), b[0], b[1], b[2], b[3], a[0], a[1], a[2], a[3],
                                      k[0], k[1], k[2], k[3], auctions.last());
        }
    }

    private void q7() {
        Serde<List<Kept>> list = json(new TypeReference<>() { });
        KTable<String, List<Kept>> best = bids().mapValues(b -> new Kept(b.auction(), b.price(), b.bidder(), b.dateTime(), b.extra()))
            .groupByKey(Grouped.with(TEXT, json(new TypeReference<Kept>() { })))
            .windowedBy(TimeWindows.ofSizeAndGrace(TEN, GRACE))
            .aggregate(List::<Kept>of, (key, one, all) -> higher(all, one), Materialized.with(TEXT, list))
            .toStream((key, bids) -> Long.toString(key.window().start()))
            .groupByKey(Grouped.with(TEXT, list))
            .aggregate(List::<Kept>of, (key, bids, all) -> highest(all, bids), Materialized.with(TEXT, list));
        write(best.toStream().mapValues((key, bids) -> new Best(Long.parseLong(key), bids)), new TypeReference<>() { });
    }

    private void q8() {
        KStream<String, At> opened = auctions().selectKey((key, a) -> Long.toString(a.seller())).mapValues(a -> new At(a.dateTime()));
        KStream<String, Came> both = persons().mapValues(p -> new Named(p.id(), p.name(), p.dateTime())).join(
            opened,
            (p, a) -> new Came(p.id(), p.name(), window(p.dateTime()), window(p.dateTime()) == window(a.dateTime())),
            JoinWindows.ofTimeDifferenceAndGrace(TEN, GRACE),
            StreamJoined.with(TEXT, json(new TypeReference<Named>() { }), json(new TypeReference<At>() { })));
        write(both.filter((key, c) -> c.same()).mapValues(c -> new New(c.id(), c.name(), c.start())), new TypeReference<>() { });
    }
}
