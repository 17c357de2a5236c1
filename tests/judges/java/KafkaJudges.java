import java.time.Duration;
import java.time.Instant;
import org.apache.kafka.streams.tests.RelationalSmokeTest;
import org.apache.kafka.streams.tests.SmokeTestDriver;

/** Calls the generators and verifiers of Apache Kafka's system tests with sizes of our own; ends with 0 for success. */
public final class KafkaJudges {
    private KafkaJudges() { }

    /** Arguments: smoke BOOTSTRAP KEYS RECORDS SECONDS, or relational BOOTSTRAP ARTICLES COMMENTS SECONDS. */
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[1];
        int first = Integer.parseInt(arguments[2]);
        int second = Integer.parseInt(arguments[3]);
        Duration time = Duration.ofSeconds(Long.parseLong(arguments[4]));
        boolean passed;
        if (arguments[0].equals("smoke")) {
            var inputs = SmokeTestDriver.generate(bootstrap, first, second, time);
            System.out.println("GENERATED");
            passed = SmokeTestDriver.verify(bootstrap, inputs, second, true).passed();
        } else {
            RelationalSmokeTest.DataSet.generate(first, second).produce(bootstrap, time);
            System.out.println("GENERATED");
            passed = RelationalSmokeTest.App.verifySync(bootstrap, Instant.now().plus(Duration.ofMinutes(10)));
        }
        System.out.println(passed ? "JUDGE: passed" : "JUDGE: failed");
        System.exit(passed ? 0 : 1);
    }
}
