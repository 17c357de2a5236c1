import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.header.*;
import org.apache.kafka.common.header.internals.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.api.*;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.*;
import org.apache.kafka.streams.test.TestRecord;
import java.time.*;
import java.util.*;

/** Prints what Kafka Streams writes into changelog topics: name, then one line a record. */
public class ChangelogRecorder {
    static String hex(byte[] b) { if (b == null) return "null"; StringBuilder s = new StringBuilder("\""); for (byte x : b) s.append(String.format("%02x", x)); return s.append("\"").toString(); }
    static StringBuilder out = new StringBuilder("{");
    static boolean first = true;

    static void run(String name, Topology topology, Object[][] inputs) {
        Properties p = new Properties();
        p.put(StreamsConfig.APPLICATION_ID_CONFIG, "app");
        p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "x:1");
        p.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        p.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);
        p.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        p.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        p.put(StreamsConfig.STATE_DIR_CONFIG, System.getProperty("java.io.tmpdir") + "/changelogs-" + System.nanoTime());
        try (TopologyTestDriver d = new TopologyTestDriver(topology, p, Instant.ofEpochMilli(0))) {
            Map<String, TestInputTopic<String, String>> in = new HashMap<>();
            for (Object[] i : inputs) {
                TestInputTopic<String, String> t = in.computeIfAbsent((String) i[0], n -> d.createInputTopic(n, new StringSerializer(), new StringSerializer()));
                Headers h = new RecordHeaders();
                if (i.length > 4) h.add((String) i[4], "hv".getBytes());
                t.pipeInput(new TestRecord<>((String) i[1], (String) i[2], h, (Long) i[3]));
            }
            if (!first) out.append(",\n"); first = false;
            out.append("\"").append(name).append("\": {");
            boolean ft = true;
            for (String topic : new TreeSet<>(d.producedTopicNames())) {
                if (!topic.endsWith("-changelog")) continue;
                if (!ft) out.append(","); ft = false;
                out.append("\n  \"").append(topic).append("\": [");
                TestOutputTopic<byte[], byte[]> t = d.createOutputTopic(topic, new ByteArrayDeserializer(), new ByteArrayDeserializer());
                boolean fr = true;
                while (!t.isEmpty()) {
                    TestRecord<byte[], byte[]> r = t.readRecord();
                    if (!fr) out.append(","); fr = false;
                    StringBuilder hs = new StringBuilder("[");
                    for (Header h : r.headers()) hs.append(hs.length() > 1 ? "," : "").append("[\"").append(h.key()).append("\",").append(hex(h.value())).append("]");
                    out.append("\n    [").append(r.timestamp()).append(",").append(hex(r.key())).append(",").append(hex(r.value())).append(",").append(hs).append("]]");
                }
                out.append("]");
            }
            out.append("}");
        }
    }

    static Object[] r(String t, String k, String v, long ts) { return new Object[]{t, k, v, ts}; }
    static Object[] rh(String t, String k, String v, long ts, String h) { return new Object[]{t, k, v, ts, h}; }

    static class Put implements Processor<String, String, String, String> {
        KeyValueStore<String, String> store; String name; ProcessorContext<String, String> c;
        Put(String name) { this.name = name; }
        public void init(ProcessorContext<String, String> c) { this.c = c; store = c.getStateStore(name); }
        public void process(Record<String, String> r) { if (r.value() == null) store.delete(r.key()); else store.put(r.key(), r.value()); }
    }
    static class PutVersioned implements Processor<String, String, String, String> {
        VersionedKeyValueStore<String, String> store;
        public void init(ProcessorContext<String, String> c) { store = c.getStateStore("s"); }
        public void process(Record<String, String> r) { store.put(r.key(), r.value(), r.timestamp()); }
    }

    public static void main(String[] a) {
        StreamsBuilder b = new StreamsBuilder();
        b.stream("in").groupByKey().count(Materialized.as("s"));
        run("count", b.build(), new Object[][]{r("in","a","x",5), r("in","b","x",9), r("in","a","y",3)});

        b = new StreamsBuilder();
        b.table("in", Materialized.as("s"));
        run("table", b.build(), new Object[][]{r("in","a","x",5), r("in","b","x",9), r("in","a",null,12)});

        b = new StreamsBuilder();
        b.stream("in").groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMillis(10), Duration.ofMillis(5))).count(Materialized.as("s"));
        run("windows", b.build(), new Object[][]{r("in","a","x",5), r("in","b","x",19), r("in","a","y",8), r("in","ab","y",200000), r("in","a","z",200001)});

        b = new StreamsBuilder();
        b.stream("in").groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofMillis(10), Duration.ofMillis(5))).count(Materialized.as("s"));
        run("sessions", b.build(), new Object[][]{r("in","a","x",5), r("in","a","x",19), r("in","a","y",12), r("in","b","y",21)});

        b = new StreamsBuilder();
        b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("s"), Serdes.String(), Serdes.String()));
        b.<String,String>stream("in").process(() -> new Put("s"), "s");
        run("plain", b.build(), new Object[][]{r("in","a","x",5), r("in","b","y",9), r("in","a",null,12)});

        b = new StreamsBuilder();
        b.addStateStore(Stores.keyValueStoreBuilder(Stores.lruMap("s", 2), Serdes.String(), Serdes.String()));
        b.<String,String>stream("in").process(() -> new Put("s"), "s");
        run("lru", b.build(), new Object[][]{r("in","a","x",5), r("in","b","y",9), r("in","c","z",12)});

        b = new StreamsBuilder();
        b.addStateStore(Stores.versionedKeyValueStoreBuilder(Stores.persistentVersionedKeyValueStore("s", Duration.ofSeconds(60)), Serdes.String(), Serdes.String()));
        b.<String,String>stream("in").process(PutVersioned::new, "s");
        run("versioned", b.build(), new Object[][]{r("in","a","x",5), r("in","a","z",12), r("in","a","y",9), r("in","a",null,20)});

        b = new StreamsBuilder();
        b.<String,String>stream("l").outerJoin(b.<String,String>stream("r"), (x, y) -> x + y, JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(10), Duration.ofMillis(2)), StreamJoined.<String,String,String>as("j").withStoreName("j")).to("out");
        run("outer", b.build(), new Object[][]{r("l","a","x",5), r("l","a","xx",5), r("r","b","yy",9), r("r","a","z",12), r("l","c","z",40)});

        b = new StreamsBuilder();
        b.<String,String>stream("in").groupByKey(Grouped.with(Serdes.String(), Serdes.String())).windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMillis(10), Duration.ofMillis(0))).count(Materialized.<String,Long,WindowStore<org.apache.kafka.common.utils.Bytes,byte[]>>as("s").withKeySerde(Serdes.String()).withValueSerde(Serdes.Long())).suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()).withName("sup")).toStream().map((k, v) -> KeyValue.pair(k.key(), "" + v)).to("out");
        run("suppress", b.build(), new Object[][]{rh("in","a","x",5,"h"), r("in","b","x",6), r("in","a","y",7), r("in","a","y",25)});

        b = new StreamsBuilder();
        KTable<String,String> t = b.<String,String>table("t", Materialized.<String,String>as(Stores.persistentVersionedKeyValueStore("tab", Duration.ofSeconds(60))));
        b.<String,String>stream("in").join(t, (x, y) -> x + y, Joined.<String,String,String>as("j").withGracePeriod(Duration.ofMillis(10))).to("out");
        run("grace", b.build(), new Object[][]{r("t","a","T",1), rh("in","a","x",5,"h"), r("in","b","y",6), r("in","a","z",30)});

        b = new StreamsBuilder();
        KTable<String,String> left = b.<String,String>table("l", Materialized.as("left"));
        KTable<String,String> right = b.<String,String>table("r", Materialized.as("right"));
        left.join(right, v -> v.substring(0, 1), (x, y) -> x + y, TableJoined.as("fk"), Materialized.as("res"));
        run("fk", b.build(), new Object[][]{r("r","k","R",1), r("l","1","k1",5), r("l","2","k2",6), r("l","1",null,7)});
        // Stores whose types nobody names: the values' types change in front of them.
        b = new StreamsBuilder();
        b.<String,String>stream("in", Consumed.with(Serdes.String(), Serdes.String())).mapValues(v -> v + v).groupByKey().aggregate(() -> "", (k, v, agg) -> agg + v, Materialized.as("s"));
        run("untyped", b.build(), new Object[][]{r("in","a","x",5), r("in","b","x",9), r("in","a","y",3)});

        b = new StreamsBuilder();
        b.<String,String>stream("in").mapValues(v -> v + v).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMillis(10), Duration.ofMillis(0))).aggregate(() -> "", (k, v, agg) -> agg + v, Materialized.<String,String,WindowStore<org.apache.kafka.common.utils.Bytes,byte[]>>as("s").withKeySerde(Serdes.String())).suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()).withName("sup")).toStream().map((k, v) -> KeyValue.pair(k.key(), v)).to("out");
        run("untyped windows", b.build(), new Object[][]{r("in","a","x",5), r("in","b","x",6), r("in","a","y",7), r("in","a","y",25)});

        b = new StreamsBuilder();
        b.<String,String>stream("in").mapValues(v -> v + v).groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofMillis(10), Duration.ofMillis(5))).aggregate(() -> "", (k, v, agg) -> agg + v, (k, x, y) -> x + y, Materialized.as("s"));
        run("untyped sessions", b.build(), new Object[][]{r("in","a","x",5), r("in","a","x",19), r("in","a","y",12), r("in","b","y",21)});

        b = new StreamsBuilder();
        b.<String,String>stream("l").mapValues(v -> v + v).outerJoin(b.<String,String>stream("r").mapValues(v -> v + v), (x, y) -> x + y, JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(10), Duration.ofMillis(2)), StreamJoined.<String,String,String>as("j").withStoreName("j")).to("out");
        run("untyped outer", b.build(), new Object[][]{r("l","a","x",5), r("l","a","xx",5), r("r","b","yy",9), r("r","a","z",12), r("l","c","z",40)});

        b = new StreamsBuilder();
        KTable<String,String> u = b.<String,String>table("t", Materialized.<String,String>as(Stores.persistentVersionedKeyValueStore("tab", Duration.ofSeconds(60))));
        b.<String,String>stream("in").mapValues(v -> v + v).join(u, (x, y) -> x + y, Joined.<String,String,String>as("j").withGracePeriod(Duration.ofMillis(10))).to("out");
        run("untyped grace", b.build(), new Object[][]{r("t","a","T",1), rh("in","a","x",5,"h"), r("in","b","y",6), r("in","a","z",30)});

        b = new StreamsBuilder();
        KTable<String,String> lefts = b.<String,String>table("l", Materialized.as("left")).mapValues(v -> v + v);
        KTable<String,String> rights = b.<String,String>table("r", Materialized.as("right")).mapValues(v -> v + v, Materialized.as("mapped"));
        lefts.join(rights, v -> v.substring(0, 1), (x, y) -> x + y, TableJoined.as("fk"), Materialized.as("res"));
        run("untyped fk", b.build(), new Object[][]{r("r","k","R",1), r("l","1","k1",5), r("l","2","k2",6), r("r","k","S",7), r("l","1",null,8)});
        System.out.println(out.append("}"));
    }
}
