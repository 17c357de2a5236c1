import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

/** Kafka Streams. settings.py says what the environment holds; UNTIL_QUIET, THREADS, CACHE_BYTES, COMMIT_MS, LINGER_MS, GROUP_PROTOCOL too. */
public final class KafkaStreamsPeer {
    private static final Pattern LINE = Pattern.compile(
        "^(\\S+) \\S+ \\S+ \\[[^\\]]+\\] \"\\S+ (\\S+) [^\"]*\" (\\d{3}) (?:\\d+|-) \"[^\"]*\" \"([^\"]*)\"$");
    private static final List<String> SYSTEMS =
        List.of("Windows", "iPhone", "iPad", "Android", "CrOS", "Ubuntu", "Macintosh", "Linux");
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<String> TEXT = Serdes.String();
    /** A number as decimal text, which every peer reads and writes. */
    private static final Serde<Long> DECIMAL = Serdes.serdeFrom(
        (topic, number) -> number == null ? null : Long.toString(number).getBytes(),
        (topic, bytes) -> bytes == null ? null : Long.valueOf(new String(bytes)));
    private static final int LOOK_MS = 20;
    private static final int TELL_MS = 100;
    private static final int QUIET_MS = 4000;

    private record Hit(String ip, String path, int status, String agent) {
        static Hit of(String line) {
            Matcher found = LINE.matcher(line);
            return found.matches()
                ? new Hit(found.group(1), found.group(2), Integer.parseInt(found.group(3)), found.group(4)) : null;
        }

        String system() {
            for (String name : SYSTEMS) {
                if (agent.contains(name)) {
                    return name;
                }
            }
            return "other";
        }

        String json() {
            return JSON.createObjectNode().put("ip", ip).put("path", path).put("status", status).toString();
        }
    }

    private static String setting(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }

    private static void mark(String name, long... more) {
        StringBuilder line = new StringBuilder("@@" + name + " " + System.currentTimeMillis());
        for (long number : more) {
            line.append(' ').append(number);
        }
        System.out.println(line);
        System.out.flush();
    }

    private static KStream<String, Hit> hits(StreamsBuilder builder) {
        return builder.stream(setting("TOPIC_LOGS", ""), Consumed.with(TEXT, TEXT))
            .mapValues(Hit::of).filter((key, hit) -> hit != null);
    }

    private static Topology topology(String workload) {
        if (workload.startsWith("q")) {
            return Nexmark.topology(workload);
        }
        if (workload.equals("shuffle")) {
            return ShuffleBench.topology();
        }
        if (workload.startsWith("uc")) {
            return Theodolite.topology(workload);
        }
        StreamsBuilder builder = new StreamsBuilder();
        String out = setting("TOPIC_OUT", "");
        switch (workload) {
            case "w1" -> hits(builder)
                .filter((key, hit) -> hit.status() >= 400)
                .mapValues(Hit::json)
                .to(out, Produced.with(TEXT, TEXT));
            case "w2a", "w2b" -> hits(builder)
                .map((key, hit) -> KeyValue.pair(workload.equals("w2a") ? hit.system() : hit.ip(), "1"))
                .groupByKey(Grouped.with(TEXT, TEXT))
                .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofMinutes(15)))
                .count()
                .toStream((key, count) -> key.key() + "@" + key.window().start())
                .to(out, Produced.with(TEXT, DECIMAL));
            case "w3" -> builder.stream(setting("TOPIC_SUMS", ""), Consumed.with(TEXT, DECIMAL))
                .groupByKey()
                .reduce(Long::sum, Materialized.with(TEXT, Serdes.Long()))
                .toStream()
                .to(out, Produced.with(TEXT, DECIMAL));
            case "w4" -> {
                KTable<String, String> users = builder.table(setting("TOPIC_USERS", ""), Consumed.with(TEXT, TEXT));
                builder.stream(setting("TOPIC_ORDERS", ""), Consumed.with(TEXT, TEXT))
                    .join(users, (order, user) -> field(user, "city") + "|" + field(order, "item"),
                          Joined.with(TEXT, TEXT, TEXT))
                    .groupBy((key, both) -> both.substring(0, both.indexOf('|')), Grouped.with(TEXT, TEXT))
                    .count()
                    .toStream()
                    .to(out, Produced.with(TEXT, DECIMAL));
            }
            default -> throw new IllegalArgumentException(workload);
        }
        return builder.build();
    }

    private static String field(String document, String name) {
        try {
            JsonNode tree = JSON.readTree(document);
            return tree.get(name).asText();
        } catch (Exception error) {
            throw new IllegalStateException(document, error);
        }
    }

    private static Properties properties() {
        Properties found = new Properties();
        found.put(StreamsConfig.APPLICATION_ID_CONFIG, setting("APP_ID", ""));
        found.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, setting("BOOTSTRAP", ""));
        found.put(StreamsConfig.STATE_DIR_CONFIG, setting("STATE_DIR", ""));
        found.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, setting("THREADS", "2"));
        found.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        found.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        found.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        if (setting("GUARANTEE", "alo").equals("eos")) {
            found.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        }
        Map<String, String> optional = Map.of(
            "CACHE_BYTES", StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG,
            "COMMIT_MS", StreamsConfig.COMMIT_INTERVAL_MS_CONFIG,
            "GROUP_PROTOCOL", StreamsConfig.GROUP_PROTOCOL_CONFIG,
            "LINGER_MS", StreamsConfig.producerPrefix("linger.ms"));
        optional.forEach((name, key) -> {
            if (System.getenv(name) != null) {
                found.put(key, System.getenv(name));
            }
        });
        return found;
    }

    private static long processed(KafkaStreams streams) {
        double total = 0;
        for (Metric metric : streams.metrics().values()) {
            if (metric.metricName().name().equals("process-total")
                    && metric.metricName().group().equals("stream-thread-metrics")) {
                total += ((Number) metric.metricValue()).doubleValue();
            }
        }
        return (long) total;
    }

    public static void main(String[] arguments) throws InterruptedException {
        KafkaStreams streams = new KafkaStreams(topology(setting("WORKLOAD", "")), properties());
        CountDownLatch stopped = new CountDownLatch(1);
        CountDownLatch closed = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                mark("RUNNING");
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopped.countDown();
            try {
                closed.await(); // the JVM halts once its hooks have ended
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }));
        streams.start();
        long expected = Long.parseLong(setting("EXPECT_PROCESSED", "0"));
        boolean untilQuiet = setting("UNTIL_QUIET", "0").equals("1"); // when nothing more comes after those expected
        long told = 0;
        long last = 0;
        long changed = 0;
        boolean begun = false;
        while (stopped.getCount() > 0) {
            long total = processed(streams);
            long now = System.currentTimeMillis();
            if (total > 0 && !begun) {
                begun = true;
                mark("FIRST");
            }
            if (begun && now - told >= TELL_MS) {
                told = now;
                mark("AT", total);
            }
            if (total != last) {
                last = total;
                changed = now;
            }
            if (expected > 0 && total >= expected && (!untilQuiet || now - changed > QUIET_MS)) {
                mark("AT", total);
                System.out.println("@@PROCESSED " + changed);
                System.out.flush();
                break;
            }
            Thread.sleep(LOOK_MS);
        }
        streams.close(Duration.ofSeconds(30));
        mark("CLOSED");
        closed.countDown();
    }
}
